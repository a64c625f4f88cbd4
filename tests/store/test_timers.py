"""Timers of deadlines and expiries: what they count from, and how they stand in `due`."""

import asyncio

import pytest

from tests.builders import WORKER, after, claim, finish, jobs, new_job, submit
from tests.expiring import FAILURE, LATER, PAST, SOON, due, ended, overrun
from tests.servers import Bench
from workron.errors import Conflict
from workron.models import Beat, ClaimRequest, JobFilter, Moment, Status
from workron.store import Store

# --- where they count from --------------------------------------------------------------------------------------------


async def test_times_count_from_the_submission_also_in_a_large_one(bench: Bench) -> None:
    store = bench.store()
    await store.submit(jobs(500, deadline=LATER, expires=Moment(at_ms=4_000_000_000_000)))
    page = await store.list_jobs(JobFilter(status=Status.PENDING), limit=1000)
    assert len(page.jobs) == 500
    assert {job.deadline_at_ms - job.created_at_ms for job in page.jobs if job.deadline_at_ms} == {60_000}
    assert {job.expires_at_ms for job in page.jobs} == {4_000_000_000_000}
    assert len(await due(bench)) == 1000


@pytest.mark.parametrize("time", [{"deadline": LATER}, {"expires": LATER}])
async def test_a_job_that_has_only_one_of_the_times_can_be_retried(
    store: Store, bench: Bench, time: dict[str, Moment]
) -> None:
    (job_id,) = await submit(store, new_job(**time))
    await store.cancel(job_id)
    assert await due(bench) == {}
    await store.retry(job_id)
    assert list(await due(bench)) == [f"{next(iter(time))} {job_id}"]


async def test_a_duration_counts_again_from_a_retry(store: Store) -> None:
    (job_id,) = await submit(store, new_job(deadline=Moment(after_ms=300), expires=Moment(after_ms=200)))
    first = await ended(store, job_id)
    await store.retry(job_id)
    again = await store.job(job_id)
    assert (again.status, again.reason) == (Status.PENDING, None)
    assert first.finished_at_ms is not None
    assert again.expires_at_ms is not None
    assert again.expires_at_ms >= first.finished_at_ms + 200
    (got,) = await claim(store)
    await overrun(store, job_id, got.fence)
    assert (await finish(store, got)).status is Status.FAILED


async def test_an_overrun_of_an_earlier_run_does_not_stop_the_next_one(store: Store) -> None:
    (job_id,) = await submit(store, new_job(deadline=SOON))
    (first,) = await claim(store)
    await overrun(store, job_id, first.fence)
    await finish(store, first, FAILURE)
    await store.retry(job_id)
    (second,) = await claim(store)
    assert (await store.attempts.heartbeat(WORKER, [(job_id, second.fence)])).attempts[second.fence] is Beat.OK
    assert (await finish(store, second)).status is Status.DONE


async def test_a_moment_stays_at_a_retry_before_it_and_does_not_hold_up_one_after_it(store: Store) -> None:
    to_come = Moment(at_ms=4_000_000_000_000)
    (job_id,) = await submit(store, new_job(deadline=to_come, expires=PAST))
    await ended(store, job_id)
    await store.retry(job_id)
    job = await store.job(job_id)
    assert (job.deadline_at_ms, job.expires_at_ms) == (to_come.at_ms, None)
    assert [got.id for got in await claim(store)] == [job_id]


async def test_a_rearmed_dependent_has_its_whole_duration_again(store: Store) -> None:
    parent, child = jobs(2, max_attempts=1)
    child.depends_on, child.expires = after(parent.id), SOON
    await store.submit([parent, child])
    (got,) = await claim(store)
    await finish(store, got, FAILURE)
    assert (await store.job(child.id)).status is Status.SKIPPED
    await asyncio.sleep(0.2)
    await store.retry(parent.id)
    (got,) = await claim(store)
    await finish(store, got)
    assert [one.id for one in await claim(store)] == [child.id]


# --- timers -----------------------------------------------------------------------------------------------------------


async def test_a_timer_is_as_good_as_the_hash_says(bench: Bench) -> None:
    """One that comes too early, or for a job that is gone, is put right."""
    store = bench.store()
    (job_id,) = await submit(store, new_job(deadline=LATER, expires=LATER))
    await bench.client.zadd(bench.keys.due, {f"deadline {job_id}": 1, f"expires {job_id}": 1, "deadline nobody": 1})
    await store.maintenance.promote()
    job = await store.job(job_id)
    assert job.status is Status.PENDING
    assert set((await due(bench)).values()) == {job.deadline_at_ms}
    assert set(await due(bench)) == {f"deadline {job_id}", f"expires {job_id}"}


@pytest.mark.damaged
async def test_a_timer_of_a_damaged_job_does_not_hold_up_the_others(bench: Bench) -> None:
    store = bench.store()
    broken, job_id = await submit(store, *jobs(2, deadline=Moment(after_ms=1)))
    await bench.client.delete(bench.keys.job(broken))
    await bench.client.set(bench.keys.job(broken), "no hash")
    await asyncio.sleep(0.02)
    await store.maintenance.promote()
    assert (await store.job(job_id)).status is Status.FAILED
    assert await due(bench) == {}


async def test_a_waiting_worker_learns_of_an_earlier_timer(bench: Bench) -> None:
    store = bench.store()
    await submit(store, new_job(delay_ms=60_000))
    request = ClaimRequest("w1", ["default"], 1, "b:1", park_ms=60_000)
    first = await store.attempts.claim(request)
    assert first.parked
    assert first.next_due_in_ms is not None
    (job_id,) = await submit(store, new_job(delay_ms=70_000, expires=Moment(after_ms=40_000)))
    async with store.attempts.own_connection() as waiting:
        assert await store.attempts.woken("w1", waiting, timeout_s=2) == "w1"
    again = await store.attempts.claim(request)
    assert again.next_due_in_ms is not None
    assert again.next_due_in_ms <= 40_000
    await store.cancel(job_id)


async def test_a_listing_of_scheduled_jobs_passes_over_the_timers(store: Store) -> None:
    await store.submit(jobs(40, deadline=LATER))
    scheduled = await submit(store, *jobs(3, delay_ms=120_000))
    found: list[str] = []
    cursor = None
    while True:
        page = await store.list_jobs(JobFilter(status=Status.SCHEDULED), limit=10, cursor=cursor)
        found += [job.id for job in page.jobs]
        if (cursor := page.next_cursor) is None:
            break
    assert found == scheduled


async def test_an_expired_job_is_neither_cancelled_nor_forgotten(store: Store) -> None:
    (job_id,) = await submit(store, new_job(deadline=SOON))
    await ended(store, job_id)
    with pytest.raises(Conflict, match="failed"):
        await store.cancel(job_id)


async def test_a_job_with_time_left_that_is_cancelled_leaves_no_timers(bench: Bench) -> None:
    store = bench.store()
    waiting, running = await submit(store, *jobs(2, deadline=LATER, expires=LATER))
    await store.cancel(waiting)
    (got,) = await claim(store)
    assert got.id == running
    await store.cancel(running)
    assert list(await due(bench)) == [f"deadline {running}"]
    await finish(store, got)
    assert await due(bench) == {}
