"""One entry that was damaged by somebody else holds up nobody but its own job."""

import asyncio

import pytest

from reaper.reaper import Reaper
from tests.array_jobs import array_job, run_all, tasks_of
from tests.builders import SUCCESS, WORKER, after, claim, finish, jobs, new_job, submit
from tests.servers import QUICK, Bench
from workron import ids
from workron.errors import StoreBroken, StoreUnavailable
from workron.models import Beat, OutputPatch, Result, Status, Verdict
from workron.models.exchange import Kept
from workron.store.encode import MAX_JOBS

pytestmark = pytest.mark.damaged


@pytest.mark.parametrize("entry", ["nobody", b"\xff b\n", ""])
async def test_an_edge_that_names_no_job_stopped_all_claims(bench: Bench, entry: str | bytes) -> None:
    store = bench.store()
    parent, other = await submit(store, new_job(), new_job())
    (child,) = await submit(store, new_job(depends_on=after(parent)))
    await bench.client.lpush(f"{bench.keys.job(parent)}:children", entry)
    claims = await claim(store, limit=2)
    assert {one.id for one in claims} == {parent, other}
    for one in claims:
        await finish(store, one)
    assert [one.id for one in await claim(store)] == [child]


@pytest.mark.parametrize("field", ["pending", "running", "done", "begun"])
async def test_a_count_of_an_array_that_is_no_number_left_jobs_running_without_a_lease(
    bench: Bench, field: str
) -> None:
    store = bench.store()
    array = array_job(2)
    await store.submit([array])
    (other,) = await submit(store, new_job())
    await bench.client.hset(bench.keys.array(array.id), field, "many")
    claims = await claim(store, limit=3)
    assert {one.id for one in claims} == {*tasks_of(array), other}
    assert await bench.client.zcard(bench.keys.leases) == 3
    for one in claims:
        await finish(store, one)
    await store.doctor.examine(rebuild=True)
    assert (await store.doctor.examine()).faults == ()
    await store.maintenance.tidy()
    assert (await store.job(array.id)).status is Status.DONE


async def test_a_count_of_a_workflow_that_is_no_number_does_not_run_its_final_job_again(bench: Bench) -> None:
    store = bench.store()
    members = [new_job(), new_job()]
    members[1].final = True
    workflow = (await store.submit(members, as_workflow=True)).workflow or ""
    await bench.client.hset(bench.keys.workflow(workflow), "done", "many")
    (first,) = await claim(store)
    await finish(store, first)
    assert await claim(store) == []
    assert (await store.doctor.examine(rebuild=True)).faults == ()
    (final,) = await claim(store)
    await finish(store, final)
    assert (final.id, await claim(store)) == (members[1].id, [])


async def test_a_task_was_made_and_run_twice_when_an_array_had_forgotten_how_many_there_are(bench: Bench) -> None:
    store = bench.store()
    array = array_job(3, max_parallel=1)
    await store.submit([array])
    (first,) = await claim(store)
    await bench.client.hset(bench.keys.array(array.id), "made", "0")
    await finish(store, first)
    assert (await store.job(first.id)).status is Status.DONE
    await store.doctor.examine(rebuild=True)
    ran = [first, *await run_all(store)]
    assert sorted(one.id for one in ran) == tasks_of(array)


async def test_an_array_is_known_again_by_its_tasks(bench: Bench) -> None:
    store = bench.store()
    array = array_job(6, max_parallel=2)
    await store.submit([array])
    await store.cancel_tasks(array.id, [5])
    first, second = await claim(store, limit=2)
    await finish(store, first)
    before = await bench.client.hgetall(bench.keys.array(array.id))
    await bench.client.delete(bench.keys.array(array.id))
    assert {fault.code for fault in (await store.doctor.examine(rebuild=True)).mended} == {"miscounted"}
    after_mend = await bench.client.hgetall(bench.keys.array(array.id))
    counts = ("size", "made", "pending", "running", "done", "cancelled", "parallel", "started")
    assert {name: int(after_mend.get(name.encode(), 0)) for name in counts} == {
        name: int(before.get(name.encode(), 0)) for name in counts
    }
    await finish(store, second)
    assert len(await run_all(store)) == 3
    assert (await store.job(array.id)).status is Status.CANCELLED  # as one of its tasks was


async def _opened_but_not_admitted(bench: Bench) -> list[str]:
    store = bench.store()

    async def admit_later(_: str) -> None: ...

    store.submitter.admit_quietly = admit_later  # type: ignore[method-assign]
    new = jobs(MAX_JOBS + 1)
    await store.submit(new, as_workflow=True)
    return [job.id for job in new]


@pytest.mark.parametrize("state", ["whatever", None])
async def test_jobs_of_a_submission_whose_state_was_damaged_were_deleted_by_the_reaper(
    bench: Bench, state: str | None
) -> None:
    stored = await _opened_but_not_admitted(bench)
    batch = bench.keys.batch(stored[0])
    await (bench.client.hdel(batch, "state") if state is None else bench.client.hset(batch, "state", state))
    store = bench.store()
    await store.maintenance.tidy()
    assert await bench.client.exists(bench.keys.job(stored[0])) == 1
    report = await store.doctor.examine(rebuild=True)
    assert ({fault.code for fault in report.mended}, report.faults) == ({"malformed"}, ())
    await store.maintenance.tidy()
    assert (await store.queue("default")).counts[Status.PENDING] == len(stored)


async def test_a_damaged_submission_keeps_no_other_from_being_admitted(bench: Bench) -> None:
    store = bench.store()
    damaged, other = ids.new_id(), await _opened_but_not_admitted(bench)
    await bench.client.set(bench.keys.batch(damaged), "x")
    await bench.client.zadd(bench.keys.batches, {damaged: 1})
    await bench.client.zadd(bench.keys.arrays, {b"\xff": 1, damaged: 2})
    await bench.client.set(bench.keys.job(damaged), "x")
    with pytest.raises(StoreBroken):
        await store.maintenance.tidy()
    assert (await store.queue("default")).counts[Status.PENDING] == len(other)


async def test_a_queue_whose_name_is_no_text_killed_all_reapers(bench: Bench) -> None:
    (job,) = await submit(bench.store(), new_job())
    await bench.client.zadd(bench.keys.queues, {b"\xff": 0})
    await bench.client.delete(bench.keys.pending("default", 5))
    reaper = Reaper(bench.store(QUICK), every_s=1)
    reaper._spot_checked_at = -1e9
    await reaper.keep_house()
    assert [one.id for one in await claim(bench.store())] == [job]


async def test_a_damaged_key_of_one_step_keeps_a_reaper_from_no_other(bench: Bench) -> None:
    (job,) = await submit(bench.store(), new_job())
    await bench.client.set(bench.keys.due, "x")
    await bench.client.delete(bench.keys.pending("default", 5))
    reaper = Reaper(bench.store(QUICK), every_s=1)
    reaper._spot_checked_at = -1e9
    with pytest.raises(StoreUnavailable):
        await reaper.keep_house()
    assert await bench.client.lrange(bench.keys.pending("default", 5), 0, -1) == [job.encode()]


@pytest.mark.parametrize("field", [("more", "0"), ("env", '{"A": 5}'), ("argv", "[5]"), ("env", "[]")])
async def test_an_invalid_object_of_a_job_was_an_error_for_every_claimer(bench: Bench, field: tuple[str, str]) -> None:
    store = bench.store()
    (job,) = await submit(store, new_job(argv=["true"], max_attempts=1))
    await bench.client.hset(bench.keys.job(job), *field)
    assert await claim(store) == []
    await store.attempts.finish([])
    assert (await store.job(job)).status is Status.FAILED


async def test_a_due_array_with_a_damaged_key_stopped_all_claims(bench: Bench) -> None:
    store = bench.store()
    array, late = array_job(2), new_job(delay_ms=1)
    array.delay_ms = 1
    await store.submit([array])
    await submit(store, late)
    (waits,) = await submit(store, new_job())
    counts = await bench.client.dump(bench.keys.array(array.id))
    await bench.client.set(bench.keys.array(array.id), "x")
    await asyncio.sleep(0.01)
    assert {one.id for one in await claim(store, limit=5)} == {late.id, waits}
    assert (await store.job(array.id)).status is Status.SCHEDULED
    await bench.client.restore(bench.keys.array(array.id), 0, counts, replace=True)
    await store.spot_check.look()
    assert sorted(one.id for one in await claim(store, limit=5)) == tasks_of(array)


async def test_an_array_that_had_ended_ran_on_when_one_of_its_counts_was_damaged(bench: Bench) -> None:
    """The reapers' look took it for one of which a task runs again."""
    store = bench.store()
    array = array_job(2)
    await store.submit([array])
    await run_all(store)
    await bench.client.hset(bench.keys.array(array.id), "done", "many")
    await store.spot_check.look()
    assert await bench.client.hmget(bench.keys.job(array.id), "status", "run") == [b"done", None]


async def test_one_damaged_job_cost_its_worker_all_heartbeats_and_output(bench: Bench) -> None:
    """The others were taken back as lost, and nothing that they wrote was kept."""
    store = bench.store()
    await submit(store, new_job(timeout_ms=60_000), new_job())
    broken, fine = await claim(store, limit=2)
    await bench.client.hset(bench.keys.job(broken.id), "started_at", "x")
    await bench.client.hset(bench.keys.job(broken.id), "releases", "x")
    await bench.client.rpush(bench.keys.output(broken.id, str(broken.fence)), "x")
    held = [(one.id, one.fence) for one in (broken, fine)]
    beats = (await store.attempts.heartbeat(WORKER, held)).attempts
    assert beats == {broken.fence: Beat.LOST, fine.fence: Beat.OK}
    patches = [(job_id, fence, OutputPatch(0, b"x", 1)) for job_id, fence in held]
    assert await store.attempts.write_output(patches) == [Kept.LOST, Kept.STORED]
    assert await store.attempts.release(held) == [None, Status.PENDING]


async def test_the_result_of_a_damaged_job_is_reported_as_broken_and_spares_the_others(bench: Bench) -> None:
    store = bench.store()
    await submit(store, new_job(), new_job())
    claims = await claim(store, limit=2)
    await bench.client.rpush(bench.keys.output(claims[0].id, claims[0].fence), "x")
    results = [Result(one.id, one.fence, SUCCESS, OutputPatch(0, b"x", 1)) for one in claims]
    exchanged = await store.attempts.finish(results, worker="w1")
    assert [one.verdict for one in exchanged.finished] == [Verdict.BROKEN, Verdict.ACCEPTED]
    assert await bench.client.smembers(bench.keys.quarantine) == {claims[0].id.encode()}


async def test_the_result_of_a_deleted_job_is_reported_as_unknown(bench: Bench) -> None:
    store = bench.store()
    await submit(store, new_job())
    (got,) = await claim(store)
    await bench.client.delete(bench.keys.job(got.id))
    assert (await finish(store, got)).verdict is Verdict.UNKNOWN
