"""What was wrong with the examination itself: false alarms, mends that made it worse, and what stopped it."""

import asyncio

import pytest

from tests.array_jobs import array_job, run_all, tasks_of
from tests.builders import after, claim, finish, jobs, new_job, submit
from tests.bulk_actions import act
from tests.damaged_namespace import Patient
from tests.servers import Bench
from workron.doctor.tally import Tally
from workron.errors import NotFound, StoreBroken
from workron.ids import new_id
from workron.models import Concurrency, Dependency, Status
from workron.models.actions import Verb


async def test_an_array_that_waits_for_another_job_has_its_room_reserved_and_that_is_no_fault(bench: Bench) -> None:
    store = bench.store()
    parent = new_job()
    await submit(store, parent)
    await store.submit([array_job(3, depends_on=after(parent.id))])
    assert (await store.doctor.examine(rebuild=True)).mended == ()
    assert await bench.client.hget(bench.keys.queue("default"), "reserved") == b"3"


@pytest.mark.large
async def test_very_many_jobs_that_come_meanwhile_are_not_too_many_for_one_answer(bench: Bench) -> None:
    store = bench.store()
    await submit(store, new_job())
    since = (await bench.client.xrevrange(bench.keys.events, count=1))[0][0].decode()
    for _ in range(25):
        await store.submit(jobs(400))
    tally = Tally(store.connection, bench.keys, store.scripts)
    tally._since, tally._behind = since, "~"
    assert await tally.at_once([("HGET", bench.keys.queue("default"), "pending")]) == [b"10001"]
    assert tally.counted["queue:default", "pending"] == 10_000, "the first one is not read"


@pytest.mark.damaged
async def test_names_that_are_no_text_stop_neither_the_doctor_nor_the_reaper(bench: Bench) -> None:
    store, redis, prefix = bench.store(), bench.client, bench.keys.prefix.encode()
    await submit(store, *jobs(3))
    await redis.zadd(bench.keys.jobs, {b"\xff\xfe": 0})
    assert await store.spot_check.look() == []
    await redis.rpush(bench.keys.pending("default", 5), b"\xff\xfe")
    await redis.sadd(bench.keys.quarantine, b"\xff\xfe")
    await redis.hset(bench.keys.queue("default"), b"\xff", "9")
    await redis.set(prefix + b"\xff", "9")
    await redis.set(prefix + b"unique:\xff\n b", "9")
    found = {(fault.code, fault.about) for fault in (await store.doctor.examine()).faults}
    assert ("foreign", "\\xff") in found
    assert ("surplus", "unique \\xff\n b") in found
    assert ("surplus", "\\xff\\xfe") in found
    assert {fault.code for fault in (await store.doctor.examine(rebuild=True)).faults} == {"foreign"}


@pytest.mark.damaged
async def test_two_rebuilds_do_not_correct_a_count_twice(bench: Bench) -> None:
    store = bench.store()
    await submit(store, new_job())
    await bench.client.hincrby(bench.keys.queue("default"), "pending", 5)
    results = await asyncio.gather(
        *[bench.store().doctor.examine(rebuild=True) for _ in range(3)], return_exceptions=True
    )
    others = [str(one) for one in results if isinstance(one, StoreBroken)]
    assert ["another rebuild is under way" in one for one in others] == [True, True]
    assert (await store.doctor.examine()).faults == ()
    assert (await store.queue("default")).counts[Status.PENDING] == 1


@pytest.mark.damaged
@pytest.mark.parametrize("key", ["concurrency:k", "concurrency:k:queues", "queue:default:keys"])
async def test_jobs_that_wait_for_a_slot_of_a_key_that_was_deleted_are_admitted(bench: Bench, key: str) -> None:
    patient = await Patient(bench).build()
    assert await bench.client.delete(patient.key(key))
    assert {"missing"} & (await patient.faults()).keys()
    assert await patient.faults(rebuild=True) == {}
    await patient.run_to_the_end()


async def test_a_concurrency_key_that_was_deleted_is_known_again_with_the_next_job(bench: Bench) -> None:
    patient = await Patient(bench).build()
    await bench.client.delete(bench.keys.concurrency("k"))
    await bench.client.zadd(bench.keys.due, {"refill k": 1})
    assert (await patient.faults(rebuild=True)) == {}
    await patient.run_to_the_end()
    await bench.client.delete(bench.keys.concurrency("k"))


@pytest.mark.damaged
async def test_a_job_whose_edges_are_gone_is_not_started_before_its_parent(bench: Bench) -> None:
    patient = await Patient(bench).build()
    await bench.client.delete(f"{bench.keys.job(patient.child)}:parents")
    assert "wrong-edge" in await patient.faults()
    assert await patient.faults(rebuild=True) == {}
    assert (await bench.store().job(patient.child)).status is Status.BLOCKED
    assert await patient.faults() == {}
    await patient.run_to_the_end()
    assert (await bench.store().job(patient.child)).status is Status.DONE


@pytest.mark.damaged
@pytest.mark.parametrize("fields", [{"rate_jobs": "5", "rate_per_ms": "x"}, {"rate_jobs": "5"}])
async def test_of_a_rate_no_half_is_left_at_which_claims_break(bench: Bench, fields: dict[str, str]) -> None:
    store = bench.store()
    await submit(store, new_job())
    await bench.client.hset(bench.keys.meta, "gated", "default")
    await bench.client.sadd(f"{bench.keys.prefix}gates", "default")
    await bench.client.hset(bench.keys.queue("default"), mapping=fields)
    report = await store.doctor.examine(rebuild=True)
    assert "malformed" in {fault.code for fault in report.mended}
    assert report.faults == ()
    assert len(await claim(store)) == 1


@pytest.mark.damaged
@pytest.mark.parametrize("fence", ["9" * 30, "many", None])
async def test_a_running_job_with_a_broken_fence_is_taken_back_and_the_counter_stays(
    bench: Bench, fence: str | None
) -> None:
    patient = await Patient(bench).build()
    key = bench.keys.job(patient.running)
    if fence is None:
        await bench.client.hdel(key, "fence")
    else:
        await bench.client.hset(key, "fence", fence)
    assert "malformed" in await patient.faults()
    assert await patient.faults(rebuild=True) == {}
    assert int(await bench.client.hget(bench.keys.meta, "fence")) < 2**43
    await patient.run_to_the_end()


async def test_a_lease_without_a_fence_is_no_lease(bench: Bench) -> None:
    patient = await Patient(bench).build()
    await bench.client.hdel(bench.keys.job(patient.running), "fence")
    await patient.run_to_the_end()


@pytest.mark.damaged
async def test_what_is_checked_far_too_late_is_found(bench: Bench) -> None:
    patient = await Patient(bench).build()
    await bench.client.zadd(bench.keys.due, {patient.later: 2**50})
    await bench.client.zadd(bench.keys.leases, {patient.running: 2**50})
    await bench.client.delete(bench.keys.heartbeat(patient.running))
    assert {fault.code for fault in await bench.store().spot_check.look()} == {"not-due"}
    await bench.store().maintenance.reap()
    assert await bench.client.zscore(bench.keys.leases, patient.running) < 2**49
    assert await patient.faults() == {}
    await patient.run_to_the_end()


@pytest.mark.damaged
async def test_a_damaged_job_stays_in_quarantine(bench: Bench) -> None:
    patient = await Patient(bench).build()
    await bench.client.hset(bench.keys.job(patient.done), "status", "whatever")
    assert "damaged" in await patient.faults(rebuild=True)
    assert await bench.client.smembers(bench.keys.quarantine) == {patient.done.encode()}


@pytest.mark.damaged
async def test_the_counts_of_a_queue_that_has_nothing_but_jobs_are_compared(bench: Bench) -> None:
    store = bench.store()
    await submit(store, new_job(run_at_ms=2**42, queue="later"))
    await bench.client.delete(bench.keys.queue("later"))
    assert [fault.code for fault in (await store.doctor.examine()).faults] == ["miscounted"]
    assert (await store.doctor.examine(rebuild=True)).faults == ()
    assert (await store.queue("later")).counts[Status.SCHEDULED] == 1


@pytest.mark.damaged
async def test_an_array_of_which_a_task_is_gone_ends_and_runs_again(bench: Bench) -> None:
    store = bench.store()
    array = array_job(3)
    await store.submit([array])
    await bench.client.delete(bench.keys.job(tasks_of(array)[1]))
    report = await store.doctor.examine(rebuild=True)
    assert "miscounted" in {fault.code for fault in report.mended}
    assert report.faults == ()
    assert len(await run_all(store)) == 2
    assert (await store.job(array.id)).status is Status.CANCELLED
    await store.retry(array.id)
    assert len(await run_all(store)) == 1
    assert (await store.job(array.id)).status is Status.DONE


@pytest.mark.damaged
async def test_the_final_job_of_a_workflow_starts_although_another_job_is_gone(bench: Bench) -> None:
    store = bench.store()
    members = [new_job(), new_job(), new_job()]
    members[2].final = True
    await store.submit(members, as_workflow=True)
    await bench.client.delete(bench.keys.job(members[0].id))
    report = await store.doctor.examine(rebuild=True)
    assert ("miscounted" in {fault.code for fault in report.mended}, report.faults) == (True, ())
    for job in members[1:]:
        (claimed,) = await claim(store)
        await finish(store, claimed)
        assert claimed.id == job.id


@pytest.mark.damaged
async def test_an_array_of_which_all_is_gone_can_still_be_cancelled(bench: Bench) -> None:
    store = bench.store()
    array = array_job(2)
    await store.submit([array])
    await bench.client.delete(bench.keys.array(array.id))
    await store.cancel(array.id)
    assert (await store.job(array.id)).status is Status.CANCELLED


async def test_a_task_is_not_run_again_when_its_array_is_forgotten(bench: Bench) -> None:
    store = bench.store()
    array = array_job(1)
    await store.submit([array])
    await run_all(store, 0)
    (task,) = tasks_of(array)
    assert (await store.scripts.maintain_sweep("failed", 0, "", 1, 2))[1] == 1  # the array, behind its task
    assert await bench.client.exists(bench.keys.job(array.id), bench.keys.job(task)) == 1
    with pytest.raises(NotFound):
        await store.retry(task)
    await act(store, Verb.RETRY, status=Status.FAILED)
    assert await bench.client.hget(bench.keys.job(task), "status") == b"failed"
    assert await bench.client.exists(bench.keys.array(array.id)) == 0


@pytest.mark.large
async def test_of_a_key_in_very_many_queues_some_are_checked_again_as_long_as_jobs_wait(bench: Bench) -> None:
    store = bench.store()
    await submit(store, new_job(concurrency=Concurrency("k", 1)))
    (running,) = await claim(store)
    for number in range(100):
        many = 3 if number == 50 else 1  # a queue that is looked at with the first, and not again with the last ones
        await submit(store, *[new_job(queue=f"q{number:02}", concurrency=Concurrency("k", 1)) for _ in range(many)])
    await finish(store, running)
    for _ in range(5):
        assert (await store.doctor.examine()).faults == ()
        await store.maintenance.promote()


@pytest.mark.damaged
async def test_a_unique_key_of_a_submission_that_is_given_up_step_by_step_is_no_leak(bench: Bench) -> None:
    store = bench.store()
    batch, job = new_id(), new_id()
    await bench.client.hset(bench.keys.batch(batch), mapping={"state": "aborted", "created_at": "1"})
    await bench.client.zadd(bench.keys.batches, {batch: 1})
    said = {"status": "pending", "batch": batch, "unique": "finished reject 60000 k", "hooks": "unique"}
    await bench.client.hset(bench.keys.job(job), mapping=said)
    await bench.client.set(bench.keys.unique("k"), f"{job} 1", px=60_000)
    assert (await store.doctor.examine()).faults == ()


@pytest.mark.damaged
async def test_a_job_is_not_skipped_because_its_parent_is_damaged(bench: Bench) -> None:
    patient = await Patient(bench).build()
    key = bench.keys.job(patient.running)
    await bench.client.hdel(key, "status")
    await bench.store().spot_check.look()
    assert (await bench.store().job(patient.child)).status is Status.BLOCKED
    await bench.client.hset(key, "status", "running")
    await patient.run_to_the_end()
    assert (await bench.store().job(patient.child)).status is Status.DONE


@pytest.mark.damaged
async def test_an_array_that_follows_another_one_and_has_forgotten_whose_turn_it_is_goes_on(bench: Bench) -> None:
    store = bench.store()
    first = array_job(3)
    second = array_job(3, max_parallel=1, depends_on=[Dependency(first.id, matching=True)])
    await store.submit([first, second])
    for claimed in await claim(store, limit=3):
        await finish(store, claimed)
    assert len(await run_all(store)) == 3
    other = array_job(3, max_parallel=1, depends_on=[Dependency(first.id, matching=True)])
    await store.submit([other])
    await store.maintenance.tidy()
    (claimed,) = await claim(store)
    await bench.client.delete(f"{bench.keys.array(other.id)}:turns")
    await finish(store, claimed)
    assert [fault.code for fault in (await store.doctor.examine()).faults] == ["stuck"]
    assert (await store.doctor.examine(rebuild=True)).faults == ()
    await store.maintenance.tidy()
    assert len(await run_all(store)) == 2
    assert (await store.job(other.id)).status is Status.DONE


@pytest.mark.damaged
async def test_a_count_that_is_no_number_is_rebuilt(bench: Bench) -> None:
    store = bench.store()
    await submit(store, *jobs(3))
    await bench.client.hset(bench.keys.queue("default"), "pending", "many")
    report = await store.doctor.examine(rebuild=True)
    assert ({fault.code for fault in report.mended}, report.faults) == ({"malformed"}, ())
    assert (await store.queue("default")).counts[Status.PENDING] == 3


@pytest.mark.damaged
async def test_a_reaper_reaps_although_what_it_noted_is_damaged(bench: Bench) -> None:
    patient = await Patient(bench).build()
    await bench.client.hset(bench.keys.meta, mapping={"passes": "x", "stalled_at": "x", "far": "x", "last_pass": "x"})
    await patient.run_to_the_end()
