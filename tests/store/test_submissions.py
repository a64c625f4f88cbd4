"""Submissions: whole or not at all, of any size, once however often they are sent."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.builders import after, claim, finish, jobs, new_job, submit
from tests.servers import Bench
from workron import ids
from workron.errors import IdempotencyConflict, StoreUnavailable, UnknownDependency
from workron.models import Idempotency, JobFilter, Status
from workron.redis.scripts import Scripts
from workron.store import Store
from workron.store.encode import MAX_BYTES, MAX_EDGES, MAX_JOBS, chunks

KEY = Idempotency("key1", "once", "print1")


class Died(BaseException):
    """The submitting process dies here."""


def die_at(scripts: Scripts, name: str, time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the submitter die before its n-th call of a script: nothing after it reaches Redis, no clean-up either."""
    run, calls, dead = scripts._run, 0, False

    async def counted(called: str, *args: Any, **options: Any) -> Any:
        nonlocal calls, dead
        calls += called == name
        dead = dead or calls == time
        if dead:
            raise Died
        return await run(called, *args, **options)

    monkeypatch.setattr(scripts, "_run", counted)


async def test_a_large_submission_is_stored_in_order(store: Store) -> None:
    many = jobs(1_000)
    submitted = await store.submit(many)
    assert submitted.ids == tuple(job.id for job in many)
    (queue,) = await store.queues()
    assert queue.counts[Status.PENDING] == 1_000
    assert [got.id for got in await claim(store, limit=100)] == [job.id for job in many[:100]]


async def test_no_call_of_a_submission_is_unbounded() -> None:
    root = jobs(1)[0]
    many = [root, *jobs(3_000, depends_on=after(root.id)), *jobs(30, command="x" * 90_000)]
    last = new_job(depends_on=after(*(job.id for job in many[:2_000])))
    calls = list(chunks([*many, last]))
    sizes = [(chunk.args.count("command"), chunk.args.count("done")) for chunk in calls]
    assert sum(size[0] for size in sizes) == len(many) + 1
    assert sum(size[1] for size in sizes) == 5_000
    assert all(count <= MAX_JOBS and edges <= MAX_EDGES for count, edges in sizes)
    for chunk in calls:
        assert sum(len(arg) for arg in chunk.args if isinstance(arg, str)) < MAX_BYTES + 120_000


async def left_over(bench: Bench) -> list[bytes]:
    """All keys of the namespace but meta, which always exists."""
    names = [name async for name in bench.client.scan_iter(f"{bench.keys.prefix}*")]
    return [name for name in names if name.decode() != bench.keys.meta]


@pytest.mark.parametrize(
    ("call", "time"),
    [
        ("submission_stage", 1),
        ("submission_stage", 2),
        ("submission_stage", 3),
        ("submission_open", 1),
        ("submission_admit", 1),
        ("submission_admit", 2),
        ("submission_admit", 3),
    ],
)
async def test_a_submitter_that_dies_leaves_all_or_nothing(
    bench: Bench, call: str, time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000 jobs are three chunks, an opening and three admissions: it dies before each of them in turn."""
    submitter, other = bench.store(), bench.store()
    many = jobs(1_000)
    die_at(submitter.scripts, call, time, monkeypatch)
    with pytest.raises(Died):
        await submitter.submit(many)
    monkeypatch.setattr("workron.store.submit.ABANDONED_MS", 0)
    stored = [job for job in await other.jobs([job.id for job in many]) if job]
    assert len(stored) in (0, 1_000)
    assert bool(stored) is (call == "submission_admit")
    await other.maintenance.tidy()
    counts = {queue.name: queue.counts[Status.PENDING] for queue in await other.queues()}
    assert counts == ({"default": 1_000} if stored else {})
    left = await left_over(bench)
    assert len(left) >= 1_000 if stored else len(left) <= 1  # the aborted batch's mark


async def test_a_half_staged_submission_is_not_visible(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    submitter, other = bench.store(), bench.store()
    many = jobs(1_000)
    die_at(submitter.scripts, "submission_open", 1, monkeypatch)
    with pytest.raises(Died):
        await submitter.submit(many, as_workflow=True)
    assert await other.jobs([many[0].id]) == [None]
    assert (await other.list_jobs(JobFilter())).jobs == ()
    with pytest.raises(UnknownDependency):
        await other.submit([new_job(depends_on=after(many[0].id))])
    assert await claim(other) == []


async def test_an_abandoned_submission_refuses_further_chunks(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    submitter, other = bench.store(), bench.store()
    monkeypatch.setattr("workron.store.submit.ABANDONED_MS", 0)
    stage = submitter.scripts.submission_stage

    async def slow(**args: Any) -> Any:
        if args["chunk"] == 2:
            await other.maintenance.tidy()
        return await stage(**args)

    monkeypatch.setattr(submitter.scripts, "submission_stage", slow)
    many = jobs(1_000)
    with pytest.raises(StoreUnavailable, match="aborted"):
        await submitter.submit(many)
    assert set(await other.jobs([job.id for job in many])) == {None}


async def test_an_unknown_dependency_in_the_last_chunk_stores_nothing(bench: Bench) -> None:
    store = bench.store()
    many = jobs(999)
    with pytest.raises(UnknownDependency):
        await store.submit([*many, new_job(depends_on=after(ids.new_id()))])
    assert set(await store.jobs([job.id for job in many])) == {None}
    assert [name async for name in bench.client.scan_iter(f"{bench.keys.prefix}job:*")] == []


async def test_a_parent_that_ends_while_its_children_are_staged_loses_none(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, worker = bench.store(), bench.store()
    (parent,) = await submit(store, new_job())
    many = jobs(900, depends_on=after(parent))
    stage = store.scripts.submission_stage

    async def ending(**args: Any) -> Any:
        reply = await stage(**args)
        if args["chunk"] == 1:
            (got,) = await claim(worker)
            await finish(worker, got)
        return reply

    monkeypatch.setattr(store.scripts, "submission_stage", ending)
    await store.submit(many)
    (queue,) = await store.queues()
    assert (queue.counts[Status.PENDING], queue.counts[Status.BLOCKED]) == (900, 0)


@pytest.mark.parametrize("size", [1, 3, 1_000])
async def test_the_same_key_and_body_store_one_submission(store: Store, size: int) -> None:
    first = await store.submit(jobs(size), idempotency=KEY)
    again = await store.submit(jobs(size), idempotency=KEY)
    assert (again.ids, again.repeated, first.repeated) == (first.ids, True, False)
    (queue,) = await store.queues()
    assert queue.counts[Status.PENDING] == size


@pytest.mark.parametrize("size", [1, 1_000])
async def test_the_same_key_with_another_body_is_refused(store: Store, size: int) -> None:
    await store.submit(jobs(size), idempotency=KEY)
    with pytest.raises(IdempotencyConflict):
        await store.submit(jobs(size), idempotency=Idempotency("key1", "once", "print2"))


@pytest.mark.parametrize("size", [1, 1_000])
async def test_a_key_used_twice_at_once_stores_one_submission(bench: Bench, size: int) -> None:
    stores = [bench.store() for _ in range(4)]
    answers = await asyncio.gather(*(one.submit(jobs(size), idempotency=KEY) for one in stores))
    assert len({answer.ids for answer in answers}) == 1
    (queue,) = await stores[0].queues()
    assert queue.counts[Status.PENDING] == size


async def test_a_repeated_workflow_is_answered_with_its_id(store: Store) -> None:
    first = await store.submit(jobs(2), workflow="w", idempotency=KEY)
    again = await store.submit(jobs(2), workflow="w", idempotency=KEY)
    assert first.workflow is not None
    assert again.workflow == first.workflow


async def test_a_repeated_call_of_the_same_submission_stores_it_once(store: Store) -> None:
    """A reply was lost and the call sent again with the same ids."""
    for size in (1, 1_000):
        many = jobs(size)
        await store.submit(many)
        await store.submit(many)
    (queue,) = await store.queues()
    assert queue.counts[Status.PENDING] == 1_001


async def test_a_workflow_knows_its_jobs_and_counts(store: Store) -> None:
    first, second = jobs(2)
    made = await store.submit(
        [first, new_job(id=second.id, depends_on=after(first.id))], workflow="nightly", as_workflow=True
    )
    assert made.workflow is not None
    workflow = await store.workflow(made.workflow)
    assert (workflow.name, workflow.size, workflow.finished) == ("nightly", 2, False)
    assert (workflow.counts[Status.PENDING], workflow.counts[Status.BLOCKED]) == (1, 1)
    assert [job.id for job in await store.workflow_jobs(made.workflow)] == [first.id, second.id]
    for _ in range(2):
        (got,) = await claim(store)
        await finish(store, got)
    assert (await store.workflow(made.workflow)).finished


async def test_ids_sort_by_the_time_they_were_made() -> None:
    made = [ids.new_id() for _ in range(50)]
    numbers: Callable[[str], int] = ids.decode
    assert sorted(made, key=lambda one: numbers(one) >> 80) == sorted(made, key=lambda one: one[:8])
    assert ids.ids_from(made[0], 3)[0] == made[0]
    assert all(ids.is_id(one) and ids.encode(ids.decode(one)) == one for one in made)


async def test_submissions_that_come_together_travel_together_and_are_judged_apart(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = bench.store()
    calls = 0
    call = store.scripts.job_submit

    async def counted(ttl_ms: int, submissions: Any) -> Any:
        nonlocal calls
        calls += 1
        return await call(ttl_ms, submissions)

    monkeypatch.setattr(store.scripts, "job_submit", counted)
    good = [new_job() for _ in range(100)]
    bad = new_job(depends_on=after(ids.new_id()))
    answers = await asyncio.gather(*(store.submit([job]) for job in [*good, bad]), return_exceptions=True)
    assert calls <= 3
    assert [type(answer).__name__ for answer in answers] == ["Submitted"] * 100 + ["UnknownDependency"]
    assert await store.jobs([bad.id]) == [None]
    (queue,) = await store.queues()
    assert queue.counts[Status.PENDING] == 100


async def test_a_submission_may_depend_on_one_of_the_same_call(store: Store) -> None:
    parent = new_job()
    child = new_job(depends_on=after(parent.id))
    await asyncio.gather(submit(store, new_job()), submit(store, parent), submit(store, child))
    assert (await store.job(child.id)).status is Status.BLOCKED


async def test_a_failed_call_fails_every_submission_in_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    store = bench.store()

    async def away(*_: Any) -> Any:
        raise StoreUnavailable("away")

    monkeypatch.setattr(store.scripts, "job_submit", away)
    answers = await asyncio.gather(*(store.submit([new_job()]) for _ in range(5)), return_exceptions=True)
    assert [str(answer) for answer in answers] == ["away"] * 5


@pytest.mark.parametrize("size", [1, 1_000])
async def test_all_jobs_of_a_submission_are_created_at_the_given_time(
    bench: Bench, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = bench.store()
    stage = store.scripts.submission_stage

    async def later(**args: Any) -> Any:
        start = await bench.client.time()
        while (await bench.client.time())[1] // 1000 == start[1] // 1000:
            pass
        return await stage(**args)

    monkeypatch.setattr(store.scripts, "submission_stage", later)
    many = [new_job(id=job_id, delay_ms=60_000) for job_id in ids.new_ids(size)]
    submitted = await store.submit(many)
    assert submitted.stored_at_ms is not None
    told = {(submitted.stored_at_ms, submitted.stored_at_ms + 60_000)}
    assert {job and (job.created_at_ms, job.run_at_ms) for job in await store.jobs(submitted.ids)} == told


async def test_blocked_and_existing_jobs_are_not_reported(store: Store) -> None:
    parent, child = jobs(2)
    child.depends_on = after(parent.id)
    assert (await store.submit([parent, child])).stored_at_ms is not None
    assert (await store.submit([parent, child])).stored_at_ms is None
    assert (await store.submit([new_job(depends_on=after(parent.id))])).stored_at_ms is None
    many = [*jobs(999), new_job(depends_on=after(parent.id))]
    assert (await store.submit(many)).stored_at_ms is None


async def test_jobs_of_several_queues_and_priorities_keep_their_order(store: Store) -> None:
    many = [
        new_job(id=job_id, queue="even" if n % 2 else "odd", priority=1 + n // 2 % 2)
        for n, job_id in enumerate(ids.new_ids(900))
    ]
    await store.submit(many)
    for queue in ("even", "odd"):
        got = [one.id for _ in range(3) for one in await claim(store, queues=[queue], limit=150)]
        mine = [job for job in many if job.queue == queue]
        assert got == [job.id for priority in (2, 1) for job in mine if job.priority == priority]


@pytest.mark.parametrize("chunk", range(3))
async def test_a_chunk_that_fails_takes_the_whole_submission_with_it(
    bench: Bench, chunk: int, monkeypatch: pytest.MonkeyPatch, wait_until: Any
) -> None:
    store = bench.store()
    stage = store.scripts.submission_stage

    async def failing(**args: Any) -> Any:
        if args["chunk"] == chunk:
            raise StoreUnavailable("away")
        return await stage(**args)

    monkeypatch.setattr(store.scripts, "submission_stage", failing)
    with pytest.raises(StoreUnavailable, match="away"):
        await store.submit(jobs(1_000))

    async def only_the_mark_of_the_aborted_batch_is_left() -> bool:
        return len(await left_over(bench)) <= 1

    await wait_until(only_the_mark_of_the_aborted_batch_is_left)
