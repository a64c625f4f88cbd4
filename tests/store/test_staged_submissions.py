"""Edges and large submissions in detail: each test fails for a small change that the others let pass."""

import asyncio
from typing import Any

import pytest

from tests.builders import after, claim, finish, jobs, new_job, submit
from tests.servers import Bench
from workron.errors import Conflict, NotFound, UnknownDependency
from workron.models import (
    Cancelled,
    NewJob,
    Outcome,
    OutputPatch,
    Reason,
    Result,
    Status,
)
from workron.store import Store
from workron.store.policy import Policy

FAILURE = Outcome(Reason.EXIT_CODE, exit_code=1, error="exit code 1")
LONG = Policy(lease_ms=30_000, pass_ms=100, retry_ms=20)


async def not_admitted(store: Store, many: list[NewJob], monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    """Open a large submission and leave its jobs to the reaper, as a submitter does that dies then."""

    async def dies(batch: str) -> None:
        pass

    with monkeypatch.context() as patch:
        patch.setattr(store.submitter, "admit_quietly", dies)
        await store.submit(many, **options)


async def counts(store: Store) -> dict[Status, int]:
    return {status: n for queue in await store.queues() for status, n in queue.counts.items() if n}


async def test_a_retry_while_edges_are_still_being_visited_starts_again_at_the_first(bench: Bench) -> None:
    store = bench.store(LONG)
    root = new_job(max_attempts=1)
    children = jobs(450, depends_on=after(root.id))
    await store.submit([root, *children])
    (got,) = await claim(store)
    await store.attempts.finish([Result(got.id, got.fence, FAILURE)], worker="w1")  # 200 visited, then its worker dies
    await store.retry(root.id)
    assert await counts(store) == {Status.PENDING: 1, Status.BLOCKED: 450}
    assert await bench.client.llen(bench.keys.propagate) == 0


async def test_a_job_waits_once_in_the_list_of_edges_to_visit(bench: Bench) -> None:
    store = bench.store(LONG)
    root = new_job(max_attempts=1)
    await store.submit([root, *jobs(450, depends_on=after(root.id))])
    (got,) = await claim(store)
    await store.attempts.finish([Result(got.id, got.fence, FAILURE)], worker="w1")
    await store.scripts.job_retry(root.id, "")
    assert await bench.client.llen(bench.keys.propagate) == 1


async def test_a_skip_reaches_the_grandchild_in_the_same_submission(store: Store) -> None:
    (a,) = await submit(store, new_job(max_attempts=1))
    (got,) = await claim(store)
    await finish(store, got, FAILURE)
    b, c = jobs(2)
    await store.submit([new_job(id=b.id, depends_on=after(a)), new_job(id=c.id, depends_on=after(b.id))])
    assert [job and job.status for job in await store.jobs([b.id, c.id])] == [Status.SKIPPED] * 2


async def test_a_child_cancelled_before_its_parent_failed_is_not_retried_before_that_one(store: Store) -> None:
    (a,) = await submit(store, new_job(max_attempts=1))
    (b,) = await submit(store, new_job(depends_on=after(a)))
    await store.cancel(b)
    (got,) = await claim(store)
    await finish(store, got, FAILURE)
    with pytest.raises(Conflict, match=a):
        await store.retry(b)
    await store.retry(a)
    await store.retry(b)
    assert (await store.job(b)).status is Status.BLOCKED


async def test_a_retried_child_waits_for_its_unfinished_parent(store: Store) -> None:
    (a,) = await submit(store, new_job())
    (b,) = await submit(store, new_job(depends_on=after(a)))
    await store.cancel(b)
    await store.retry(b)
    assert (await store.job(b)).status is Status.BLOCKED
    (got,) = await claim(store, limit=2)
    assert got.id == a


async def test_a_rearmed_job_names_no_cause_any_more(store: Store) -> None:
    (a,) = await submit(store, new_job(max_attempts=1))
    (b,) = await submit(store, new_job(depends_on=after(a)))
    (got,) = await claim(store)
    await finish(store, got, FAILURE)
    await store.retry(a)
    assert (await store.job(b)).caused_by is None


async def test_a_delayed_job_with_a_parent_is_scheduled_when_the_parent_is_done(store: Store) -> None:
    (a,) = await submit(store, new_job())
    (b,) = await submit(store, new_job(depends_on=after(a), delay_ms=60_000))
    (got,) = await claim(store)
    await finish(store, got)
    assert (await store.job(b)).status is Status.SCHEDULED


async def test_a_job_cancelled_before_it_was_admitted_stays_cancelled_and_counts_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = bench.store(LONG)
    many = jobs(500)
    await not_admitted(store, many, monkeypatch)
    assert await store.cancel(many[450].id) is Cancelled.CANCELLED
    assert await bench.client.hget(bench.keys.job(many[450].id), "batch") is None
    await store.maintenance.tidy()
    assert await counts(store) == {Status.PENDING: 499, Status.CANCELLED: 1}
    assert await bench.client.llen(bench.keys.pending("default", 5)) == 499


async def test_a_parent_cancelled_before_it_was_admitted_takes_its_children_with_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, *children = jobs(500)
    for child in children:
        child.depends_on = after(parent.id)
    await not_admitted(store, [parent, *children], monkeypatch)
    assert await store.cancel(parent.id) is Cancelled.CANCELLED
    await store.maintenance.tidy()
    assert await counts(store) == {Status.CANCELLED: 1, Status.SKIPPED: 499}


async def test_a_staged_submission_is_skipped_if_its_parent_failed(store: Store) -> None:
    (a,) = await submit(store, new_job(max_attempts=1))
    (got,) = await claim(store)
    await finish(store, got, FAILURE)
    await store.submit(jobs(450, depends_on=after(a)))
    assert (await counts(store))[Status.SKIPPED] == 450


async def test_a_broken_edge_in_a_later_chunk_of_a_job_counts(store: Store) -> None:
    (a,) = await submit(store, new_job(max_attempts=1))
    (got,) = await claim(store)
    await finish(store, got, FAILURE)
    parents = await submit(store, *(new_job() for _ in range(300)))
    (last,) = (await store.submit([new_job(depends_on=after(*parents, a))])).ids
    assert (await store.job(last)).status is Status.SKIPPED


async def test_a_job_whose_edges_came_in_two_chunks_forgot_a_child_in_the_second_one(bench: Bench) -> None:
    store = bench.store(LONG)
    *parents, child, grandchild = jobs(252)
    child.depends_on, grandchild.depends_on = after(*(job.id for job in parents)), after(child.id)
    await store.submit([*parents, child, grandchild])
    assert await bench.client.hget(bench.keys.job(child.id), "children") == b"1"


async def test_a_chunk_that_comes_twice_is_stored_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    store = bench.store()
    stage = store.scripts.submission_stage

    async def twice(**args: Any) -> Any:
        await stage(**args)
        return await stage(**args)

    monkeypatch.setattr(store.scripts, "submission_stage", twice)
    parent = new_job()
    made = await store.submit([parent, *jobs(500, depends_on=after(parent.id))], as_workflow=True)
    assert made.workflow is not None
    assert await counts(store) == {Status.PENDING: 1, Status.BLOCKED: 500}
    assert await bench.client.llen(bench.keys.workflow_jobs(made.workflow)) == 501
    assert await bench.client.llen(f"{bench.keys.job(parent.id)}:children") == 500


async def test_a_chunk_that_overtakes_the_one_before_is_sent_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two are under way; after a broken connection they may arrive in the other order, children before parents."""
    stage, first_may_go = store.scripts.submission_stage, asyncio.Event()
    replies: list[Any] = []

    async def overtaken(**call: Any) -> Any:
        if call["chunk"] == 0:
            await first_may_go.wait()
        reply = await stage(**call)
        replies.append((call["chunk"], reply[0]))
        first_may_go.set()
        return reply

    monkeypatch.setattr(store.scripts, "submission_stage", overtaken)
    many = jobs(900)
    await store.submit(many)
    assert await counts(store) == {Status.PENDING: 900}
    assert replies[:2] == [(1, b"EARLY"), (0, b"STAGED")]
    assert [number for number, word in replies if word == b"STAGED"] == [0, 1, 2]


async def test_a_submission_is_not_opened_before_its_last_chunk(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = store.scripts.submission_stage

    async def lost(**args: Any) -> Any:
        return [b"STAGED"] if args["chunk"] == 1 else await stage(**args)

    monkeypatch.setattr(store.scripts, "submission_stage", lost)
    many = jobs(1_000)
    with pytest.raises(Exception, match="aborted"):
        await store.submit(many)
    assert set(await store.jobs([job.id for job in many])) == {None}


async def test_the_reaper_leaves_a_submission_alone_that_is_still_being_made(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = bench.store(), bench.store()
    stage = store.scripts.submission_stage

    async def slow(**args: Any) -> Any:
        await other.maintenance.tidy()
        return await stage(**args)

    monkeypatch.setattr(store.scripts, "submission_stage", slow)
    await store.submit(jobs(1_000))
    assert await counts(store) == {Status.PENDING: 1_000}


async def test_an_open_submission_is_never_given_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    store = bench.store()
    many = jobs(500)
    await not_admitted(store, many, monkeypatch)
    assert await store.scripts.submission_abort(many[0].id, 0) == [b"OPEN"]
    await store.maintenance.tidy()
    assert await counts(store) == {Status.PENDING: 500}


async def test_what_is_left_of_a_given_up_submission_is_not_seen_and_its_mark_expires(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = bench.store()
    many = jobs(500)
    open_ = store.scripts.submission_open

    async def dies(**args: Any) -> Any:
        await store.scripts.submission_abort(many[0].id, 0)
        left = many[450].id
        for steer in (store.cancel, store.retry):
            with pytest.raises(NotFound):
                await steer(left)
        with pytest.raises(UnknownDependency):
            await store.submit([new_job(depends_on=after(left))])
        return await open_(**args)

    monkeypatch.setattr(store.scripts, "submission_open", dies)
    with pytest.raises(Exception, match="aborted"):
        await store.submit(many)
    assert 0 < await bench.client.pttl(bench.keys.batch(many[0].id)) <= 3_600_000


async def test_a_staged_job_can_be_neither_cancelled_nor_retried(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    many = jobs(500)
    open_ = store.scripts.submission_open

    async def looked_at(**args: Any) -> Any:
        for steer in (store.cancel, store.retry):
            with pytest.raises(NotFound):
                await steer(many[0].id)
        return await open_(**args)

    monkeypatch.setattr(store.scripts, "submission_open", looked_at)
    await store.submit(many)
    assert await counts(store) == {Status.PENDING: 500}


async def test_output_is_not_stored_on_a_full_server(bench: Bench) -> None:
    store = bench.store(LONG)
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    await bench.client.hset(bench.keys.meta, "full", "1")
    await store.attempts.write_output([(job_id, got.fence, OutputPatch(0, b"x", 1))])
    assert (await store.output(job_id)).total == 0
