"""Maintenance: retention, dead ids, memory. Nothing in Redis grows without bound."""

import asyncio
from typing import Any

import pytest

from tests.builders import after, claim, finish, jobs, new_job, submit
from tests.queue_limits import limit_queue
from tests.servers import QUICK, Bench
from workron import ids
from workron.errors import StoreFull
from workron.models import Outcome, OutputPatch, Reason, Result, Status
from workron.store import Store
from workron.store.arrays import Arrays
from workron.store.policy import Policy
from workron.store.retention import Sweeper

SHORT = Policy(lease_ms=300, pass_ms=100, stop_ms=500, retention_done_ms=1, retention_failed_ms=1)
FAILURE = Outcome(Reason.EXIT_CODE, exit_code=1)


async def end_all(store: Store, outcome: Outcome = Outcome(None, exit_code=0)) -> None:  # noqa: B008 - frozen
    while got := await claim(store, limit=50):
        for one in got:
            await finish(store, one, outcome)


async def test_finished_jobs_leave_with_everything_that_is_theirs(bench: Bench) -> None:
    store = bench.store(SHORT)
    (parent,) = await submit(store, new_job())
    await submit(store, new_job(depends_on=after(parent)), *(new_job() for _ in range(120)))
    (got,) = await claim(store)
    await store.attempts.finish(
        [Result(got.id, got.fence, Outcome(None, exit_code=0), OutputPatch(0, b"x", 1))], worker="w1"
    )
    await store.maintenance.propagate()
    await end_all(store)
    await asyncio.sleep(0.02)
    assert (await store.maintenance.sweep()).deleted == 122
    left = [name async for name in bench.client.scan_iter(f"{bench.keys.prefix}*") if await bench.client.exists(name)]
    assert {name.decode().removeprefix(bench.keys.prefix) for name in left} <= {"meta", "events", "worker:w1:claim"}
    assert await store.queues() == []


async def test_retention_differs_for_failed_jobs(bench: Bench) -> None:
    store = bench.store(Policy(lease_ms=300, retention_done_ms=1, retention_failed_ms=600_000))
    done, failed = await submit(store, new_job(), new_job(max_attempts=1))
    first, second = await claim(store, limit=2)
    await finish(store, first)
    await finish(store, second, FAILURE)
    await asyncio.sleep(0.02)
    await store.maintenance.sweep()
    assert [job and job.status for job in await store.jobs([done, failed])] == [None, Status.FAILED]


async def test_jobs_of_an_unfinished_workflow_stay_and_do_not_hold_up_others(bench: Bench) -> None:
    store = bench.store(SHORT)
    root = new_job()
    late = new_job(delay_ms=600_000)
    await store.submit([root, *(new_job() for _ in range(150)), late], workflow="w", as_workflow=True)
    await end_all(store)
    (loner,) = await submit(store, new_job())
    await end_all(store)
    await asyncio.sleep(0.02)
    swept = await store.maintenance.sweep()
    assert swept.deleted == 1
    assert [job is None for job in await store.jobs([loner, root.id])] == [True, False]


async def test_a_workflow_leaves_with_its_last_job(bench: Bench) -> None:
    store = bench.store(SHORT)
    made = await store.submit([new_job() for _ in range(3)], workflow="w", as_workflow=True)
    assert made.workflow is not None
    await end_all(store)
    await asyncio.sleep(0.02)
    await store.maintenance.sweep()
    assert not await bench.client.exists(bench.keys.workflow(made.workflow), bench.keys.workflow_jobs(made.workflow))


async def test_a_workflow_was_gone_with_the_first_of_its_jobs(bench: Bench) -> None:
    store = bench.store(Policy(lease_ms=300, retention_done_ms=1, retention_failed_ms=600_000))
    made = await store.submit([new_job(), new_job(max_attempts=1)], as_workflow=True)
    first, second = await claim(store, limit=2)
    await finish(store, first)
    await finish(store, second, FAILURE)
    await asyncio.sleep(0.02)
    assert (await store.maintenance.sweep()).deleted == 1
    assert (await store.workflow(made.workflow or "")).counts[Status.FAILED] == 1


@pytest.mark.damaged
@pytest.mark.parametrize("status", ["pending", "running", "gone"])
async def test_an_entry_of_an_index_that_names_no_ended_job_deletes_nothing_and_goes(bench: Bench, status: str) -> None:
    store = bench.store(SHORT)
    (job_id,) = await submit(store, new_job())
    if status == "running":
        await claim(store)
    entry = ids.new_id() if status == "gone" else job_id
    await bench.client.zadd(bench.keys.index(None, "done"), {entry: 1})
    await store.maintenance.sweep()
    assert (await store.job(job_id)).status is (Status.RUNNING if status == "running" else Status.PENDING)
    assert await bench.client.zcard(bench.keys.index(None, "done")) == 0
    assert not await bench.client.exists(bench.keys.quarantine)


@pytest.mark.damaged
async def test_a_queue_whose_counts_are_damaged_lost_its_pending_jobs_with_a_sweep(bench: Bench) -> None:
    store = bench.store(SHORT)
    (ended,) = await submit(store, new_job())
    await end_all(store)
    (waiting,) = await submit(store, new_job())
    await bench.client.delete(bench.keys.queue("default"))
    await bench.client.set(bench.keys.queue("default"), "no hash")
    await asyncio.sleep(0.02)
    await store.maintenance.sweep()
    assert await store.jobs([ended]) == [None]
    assert [one.id for one in await claim(store)] == [waiting]


async def test_a_job_with_dependents_to_notify_is_kept(bench: Bench) -> None:
    store = bench.store(SHORT)
    root = new_job()
    await store.submit([root, *(new_job(depends_on=after(root.id)) for _ in range(450))], as_workflow=True)
    (got,) = await claim(store)
    await store.attempts.finish([Result(got.id, got.fence, Outcome(None, exit_code=0))], worker="w1")
    await bench.client.hdel(bench.keys.job(root.id), "workflow")
    await asyncio.sleep(0.02)
    await store.maintenance.sweep()
    assert (await store.job(root.id)).status is Status.DONE
    await store.maintenance.propagate()
    await store.maintenance.sweep()
    assert await store.jobs([root.id]) == [None]


async def test_due_jobs_are_promoted_by_the_reaper(store: Store) -> None:
    ids = await submit(store, *(new_job(delay_ms=20) for _ in range(250)))
    await asyncio.sleep(0.05)
    assert await store.maintenance.promote() is None
    assert {job.status for job in await store.jobs(ids) if job} == {Status.PENDING}


async def test_dead_ids_are_trimmed_and_the_living_keep_their_order(bench: Bench) -> None:
    store = bench.store()
    key = bench.keys.pending("default", 5)
    await bench.client.rpush(key, *(f"dead{n}" for n in range(700)))
    (first,) = await submit(store, new_job())
    await bench.client.rpush(key, *(f"dead{n}" for n in range(900)))
    (second,) = await submit(store, new_job())
    assert (await store.maintenance.sweep()).trimmed == 1_600
    assert await bench.client.lrange(key, 0, -1) == [first.encode(), second.encode()]


async def test_ids_of_jobs_that_wait_elsewhere_by_now_are_trimmed(bench: Bench) -> None:
    store = bench.store()
    moved, other = await submit(store, new_job(queue="a", priority=7), new_job())
    for queue, priority in (("a", 5), ("default", 7), ("default", 5)):
        await bench.client.rpush(bench.keys.pending(queue, priority), moved)
        assert await store.scripts.maintain_trim(queue, priority, 0, 100) == [b"TRIMMED", -1, 1]
    assert await store.scripts.maintain_trim("a", 7, 0, 100) == [b"TRIMMED", -1, 0]
    assert {one.id for one in await claim(store, queues=["a", "default"], limit=5)} == {moved, other}


async def test_submissions_were_refused_for_ever_when_a_full_server_had_room_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    too_much: float | None = 0.5

    async def excess(_: Any) -> float | None:
        return too_much

    monkeypatch.setattr(Sweeper, "excess", excess)
    store = bench.store()
    await submit(store, *jobs(9))
    await store.maintenance.reap()
    assert await bench.client.hget(bench.keys.meta, "full") == b"5"  # as many jobs have to go
    too_much = None  # the server does not say
    await store.maintenance.reap()
    with pytest.raises(StoreFull):
        await submit(store, new_job())
    too_much = 0.0
    await store.maintenance.reap()
    await submit(store, new_job())


async def test_a_full_server_refuses_submissions_and_lets_work_finish(bench: Bench) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job())
    await bench.client.hset(bench.keys.meta, "full", "1")
    with pytest.raises(StoreFull):
        await submit(store, new_job())
    with pytest.raises(StoreFull):
        await store.submit([new_job() for _ in range(500)])
    (got,) = await claim(store)
    await finish(store, got)
    assert (await store.job(job_id)).status is Status.DONE


async def test_the_events_stream_is_capped(bench: Bench) -> None:
    if bench.kind == "fake":
        count = 1_500
        store = bench.store(QUICK)
        for _ in range(count // 100):
            await submit(store, *jobs(100))
        assert await bench.client.xlen(bench.keys.events) < count
    else:
        pipe = bench.client.pipeline()
        for _ in range(3_000):
            pipe.xadd(bench.keys.events, {"pending": "x"})
        await pipe.execute()
        await submit(bench.store(), new_job())
        assert await bench.client.xlen(bench.keys.events) < 1_500


async def test_a_queue_keeps_its_limit_when_it_is_empty_and_is_forgotten_without(bench: Bench) -> None:
    store = bench.store(Policy(lease_ms=300, pass_ms=100, retention_done_ms=0))
    await limit_queue(store, "default", 2)
    await submit(store, new_job())
    (got,) = await claim(store)
    await finish(store, got)
    await store.maintenance.sweep()
    (queue,) = await store.queues()
    assert (queue.max_pending, sum(queue.counts.values())) == (2, 0)
    await limit_queue(store, "default", None)
    assert await store.queues() == []
    assert not await bench.client.exists(bench.keys.queue("default"))


async def test_a_pass_took_half_a_second_for_each_array_before_anything_else(
    bench: Bench, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[bytes] = []

    async def step(_: Arrays, job_id: bytes) -> bool:
        steps.append(job_id)
        if len(steps) == 5:  # without a bound it would go on
            await bench.client.delete(bench.keys.arrays)
        return True

    monkeypatch.setattr(Arrays, "step", step)
    await bench.client.zadd(bench.keys.arrays, {"a": 1, "b": 2})
    await store.maintenance.tidy(0)
    assert steps == [b"a"]
    await bench.client.delete(bench.keys.arrays)
