"""Dependencies: children start when their parents end as asked, are skipped when that is out of reach."""

import asyncio

import pytest

from tests.builders import after, claim, finish, jobs, new_job, submit
from tests.servers import Bench
from workron import ids
from workron.errors import Conflict, UnknownDependency
from workron.models import Cancelled, NewJob, Outcome, Reason, Result, Status, When
from workron.store import Store

FAILURE = Outcome(Reason.EXIT_CODE, exit_code=1)


async def end_next(store: Store, outcome: Outcome | None = None) -> str:
    (got,) = await claim(store, wait=True)
    await (finish(store, got) if outcome is None else finish(store, got, outcome))
    return got.id


async def statuses(store: Store, *ids: str) -> list[Status | None]:
    return [job and job.status for job in await store.jobs(ids)]


async def test_a_child_waits_for_all_its_parents(store: Store) -> None:
    a, b = await submit(store, new_job(), new_job())
    (child,) = await submit(store, new_job(depends_on=after(a, b)))
    await end_next(store)
    assert await statuses(store, child) == [Status.BLOCKED]
    await end_next(store)
    assert await statuses(store, child) == [Status.PENDING]
    job = await store.job(child)
    assert [(edge.job, edge.status) for edge in job.dependencies] == [(a, Status.DONE), (b, Status.DONE)]


async def test_a_failed_parent_skips_the_whole_subtree_and_names_the_cause(store: Store) -> None:
    (a,) = await submit(store, new_job(max_attempts=1))
    (b,) = await submit(store, new_job(depends_on=after(a)))
    (c,) = await submit(store, new_job(depends_on=after(b)))
    await end_next(store, FAILURE)
    assert await statuses(store, a, b, c) == [Status.FAILED, Status.SKIPPED, Status.SKIPPED]
    job = await store.job(b)
    assert (job.reason, job.caused_by) == (Reason.UPSTREAM, a)
    assert a in (job.error or "")


@pytest.mark.parametrize(
    ("when", "outcome", "status"),
    [
        (When.DONE, None, Status.PENDING),
        (When.DONE, FAILURE, Status.SKIPPED),
        (When.FAILED, None, Status.SKIPPED),
        (When.FAILED, FAILURE, Status.PENDING),
        (When.FINISHED, None, Status.PENDING),
        (When.FINISHED, FAILURE, Status.PENDING),
    ],
)
async def test_an_edge_asks_for_an_end(store: Store, when: When, outcome: Outcome | None, status: Status) -> None:
    (parent,) = await submit(store, new_job(max_attempts=1))
    (child,) = await submit(store, new_job(depends_on=after(parent, when=when)))
    await end_next(store, outcome)
    (late,) = await submit(store, new_job(depends_on=after(parent, when=when)))
    assert await statuses(store, child, late) == [status, status]


async def test_a_finished_edge_runs_after_a_skipped_parent(store: Store) -> None:
    (a,) = await submit(store, new_job(max_attempts=1))
    (b,) = await submit(store, new_job(depends_on=after(a)))
    (cleanup,) = await submit(store, new_job(depends_on=after(b, when=When.FINISHED)))
    await end_next(store, FAILURE)
    assert await statuses(store, b, cleanup) == [Status.SKIPPED, Status.PENDING]


async def test_an_unknown_dependency_stores_nothing(store: Store) -> None:
    good = new_job()
    with pytest.raises(UnknownDependency) as caught:
        await submit(store, good, new_job(depends_on=after("0000000000000000000000")))
    assert caught.value.job_ids == ("0000000000000000000000",)
    assert await store.jobs([good.id]) == [None]
    assert await store.queues() == []


async def test_cancelling_a_parent_skips_its_children(store: Store) -> None:
    (a,) = await submit(store, new_job())
    (b,) = await submit(store, new_job(depends_on=after(a)))
    assert await store.cancel(a) is Cancelled.CANCELLED
    assert await statuses(store, a, b) == [Status.CANCELLED, Status.SKIPPED]
    assert await claim(store) == []


async def test_retrying_a_failed_parent_rearms_what_was_skipped_because_of_it(store: Store) -> None:
    (a,) = await submit(store, new_job(max_attempts=1))
    (b,) = await submit(store, new_job(depends_on=after(a)))
    (c,) = await submit(store, new_job(depends_on=after(b)))
    await end_next(store, FAILURE)
    await store.retry(a)
    assert await statuses(store, a, b, c) == [Status.PENDING, Status.BLOCKED, Status.BLOCKED]
    for expected in (a, b, c):
        assert await end_next(store) == expected
    jobs = await store.jobs([a, b, c])
    assert [(job.status, job.run, job.error) for job in jobs if job] == [(Status.DONE, 2, None)] * 3


async def test_a_child_with_two_failed_parents_needs_both_retried(store: Store) -> None:
    a, b = await submit(store, new_job(max_attempts=1), new_job(max_attempts=1))
    (child,) = await submit(store, new_job(depends_on=after(a, b)))
    await end_next(store, FAILURE)
    await end_next(store, FAILURE)
    await store.retry(a)
    assert await statuses(store, child) == [Status.SKIPPED]
    await store.retry(b)
    assert await statuses(store, child) == [Status.BLOCKED]
    await end_next(store)
    await end_next(store)
    assert await statuses(store, child) == [Status.PENDING]


async def test_a_skipped_job_is_retried_through_its_cause_only(store: Store) -> None:
    (a,) = await submit(store, new_job(max_attempts=1))
    (b,) = await submit(store, new_job(depends_on=after(a)))
    await end_next(store, FAILURE)
    with pytest.raises(Conflict, match=a):
        await store.retry(b)


async def test_a_cancelled_child_stays_cancelled_and_can_be_retried_later(store: Store) -> None:
    (a,) = await submit(store, new_job())
    (b,) = await submit(store, new_job(depends_on=after(a)))
    await store.cancel(b)
    await end_next(store)
    assert await statuses(store, b) == [Status.CANCELLED]
    await store.retry(b)
    assert await statuses(store, b) == [Status.PENDING]


async def test_a_child_does_not_start_when_its_parent_is_being_retried(store: Store) -> None:
    a, other = await submit(store, new_job(max_attempts=1), new_job())
    (child,) = await submit(store, new_job(depends_on=(*after(a, when=When.FAILED), *after(other))))
    await end_next(store, FAILURE)
    await store.retry(a)
    assert await end_next(store) == other
    assert await statuses(store, child) == [Status.BLOCKED]
    assert await end_next(store) == a
    assert await statuses(store, child) == [Status.SKIPPED]


@pytest.mark.large
async def test_a_chain_of_a_thousand_jobs_completes(store: Store) -> None:
    jobs: list[NewJob] = []
    for _ in range(1000):
        jobs.append(new_job(depends_on=after(jobs[-1].id) if jobs else ()))
    await store.submit(jobs, as_workflow=True)
    for job in jobs:
        assert await end_next(store) == job.id


@pytest.mark.large
async def test_a_fan_out_of_many_jobs_is_released_in_bounded_steps(bench: Bench) -> None:
    store, size = bench.store(), 1_000 if bench.kind == "fake" else 10_000
    root = new_job()
    children = [new_job(depends_on=after(root.id)) for _ in range(size)]
    await store.submit([root, *children], as_workflow=True)
    await end_next(store)
    (queue,) = await store.queues()
    assert (queue.counts[Status.PENDING], queue.counts[Status.BLOCKED]) == (size, 0)


@pytest.mark.large
async def test_a_fan_out_is_skipped_completely_when_its_root_fails(store: Store) -> None:
    root = new_job(max_attempts=1)
    await store.submit([root, *(new_job(depends_on=after(root.id)) for _ in range(700))], as_workflow=True)
    await end_next(store, FAILURE)
    (queue,) = await store.queues()
    assert queue.counts[Status.SKIPPED] == 700


@pytest.mark.large
async def test_a_fan_in_of_many_jobs_starts_after_the_last(store: Store) -> None:
    parents = [new_job() for _ in range(600)]
    last = new_job(depends_on=after(*(parent.id for parent in parents)))
    await store.submit([*parents, last], as_workflow=True)
    claims = []
    while got := await claim(store, limit=100):
        claims += got
    assert len(claims) == 600
    for one in claims[:-1]:
        await finish(store, one)
    assert await statuses(store, last.id) == [Status.BLOCKED]
    await finish(store, claims[-1])
    assert await statuses(store, last.id) == [Status.PENDING]


async def test_edges_left_by_a_dead_finisher_are_visited_by_the_reaper(bench: Bench) -> None:
    store, size = bench.store(), 450
    root = new_job()
    await store.submit([root, *(new_job(depends_on=after(root.id)) for _ in range(size))], as_workflow=True)
    (got,) = await claim(store)
    exchanged = await store.attempts.finish([Result(got.id, got.fence, Outcome(None, exit_code=0))], worker="w1")
    assert exchanged.propagating
    await store.maintenance.propagate()
    (queue,) = await store.queues()
    assert queue.counts[Status.PENDING] == size
    assert not await bench.client.exists(bench.keys.propagate)


async def test_parents_that_end_while_children_are_submitted_lose_no_child(store: Store) -> None:
    async def worker() -> None:
        while got := await claim(store, limit=10):
            for one in got:
                await finish(store, one)

    parents = await submit(store, *(new_job() for _ in range(100)))
    children = [new_job(depends_on=after(parent)) for parent in parents]
    await asyncio.gather(worker(), *(submit(store, child) for child in children))
    await worker()
    assert set(await statuses(store, *(child.id for child in children))) == {Status.DONE}


async def test_a_long_walk_over_edges_held_up_the_dependents_of_others(store: Store) -> None:
    big, small = new_job(), new_job()
    [one] = jobs(1, depends_on=after(small.id), queue="behind")
    await submit(store, big, small)
    await store.submit([*jobs(350, depends_on=after(big.id), queue="behind"), one])
    results = [Result(got.id, got.fence, Outcome(None, exit_code=0)) for got in await claim(store, limit=2)]
    exchanged = await store.attempts.finish(results, worker="w1")
    assert exchanged.propagating
    assert await statuses(store, one.id) == [Status.PENDING]
    await store.maintenance.propagate()
    [counts] = [queue.counts for queue in await store.queues() if queue.name == "behind"]
    assert counts[Status.PENDING] == 351


async def test_the_cause_of_a_skipped_job_is_its_first_parent_that_failed_as_long_as_that_has(store: Store) -> None:
    first, second, third = parents = jobs(3, max_attempts=1)
    child = new_job(depends_on=after(*(parent.id for parent in parents)))
    await submit(store, *parents, child)
    claims = {got.id: got for got in await claim(store, limit=3)}
    for parent in (third, first, second):
        await finish(store, claims[parent.id], FAILURE)
        assert (await store.job(child.id)).caused_by == third.id
    await store.retry(first.id)
    assert (await store.job(child.id)).caused_by == third.id
    await finish(store, (await claim(store))[0], FAILURE)
    assert (await store.job(child.id)).caused_by == third.id
    await store.retry(third.id)
    assert (await store.job(child.id)).caused_by in (first.id, second.id)
    await store.retry(first.id)
    assert (await store.job(child.id)).caused_by == second.id
    await store.retry(second.id)
    assert (await store.job(child.id)).caused_by is None
    assert (await store.job(child.id)).status is Status.BLOCKED


@pytest.mark.damaged
async def test_a_walk_to_jobs_that_are_gone_goes_on_and_records_no_damage(store: Store, bench: Bench) -> None:
    (parent,) = await submit(store, new_job())
    (child,) = await submit(store, new_job(depends_on=after(parent)))
    await bench.client.lpush(f"{bench.keys.job(parent)}:children", f"done:{ids.new_id()}")
    await bench.client.rpush(bench.keys.propagate, ids.new_id())
    await finish(store, (await claim(store))[0])
    await store.maintenance.propagate()
    assert (await store.job(child)).status is Status.PENDING
    assert not await bench.client.exists(bench.keys.propagate, bench.keys.quarantine)
