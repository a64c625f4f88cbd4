"""Deadlines and expiries: a job whose time has run out ends as `expired`, in whatever state that finds it."""

import asyncio
import time
from typing import Any

import pytest
from builders import WORKER, after, claim, finish, jobs, new_job, reap_all, submit
from servers import Bench

from workron.errors import Conflict
from workron.listing import JobFilter
from workron.models import Beat, ClaimRequest, Job, Moment, Outcome, Reason, Status, Verdict, When
from workron.policy import Policy
from workron.store import Store

SOON = Moment(after_ms=150)
LATER = Moment(after_ms=60_000)
PAST = Moment(at_ms=1)
FAILURE = Outcome(Reason.EXIT_CODE, exit_code=3, error="exit code 3\nno space left")
STUBBORN = Policy(lease_ms=2_000, pass_ms=100, stop_ms=50)


async def ended(store: Store, job_id: str) -> Job:
    """The job once timers have ended it."""
    return await changed(store, job_id, *(status for status in Status if status.terminal))


async def changed(store: Store, job_id: str, *statuses: Status) -> Job:
    deadline = time.monotonic() + 10
    while (job := await store.job(job_id)).status not in statuses and time.monotonic() < deadline:
        await store.upkeep.promote()
        await asyncio.sleep(0.01)
    return job


async def overrun(store: Store, job_id: str, fence: int) -> None:
    """Return when the running job has been told to stop because its deadline has passed."""
    while (await store.attempts.heartbeat(WORKER, [(job_id, fence)])).attempts[fence] is Beat.OK:
        await store.upkeep.promote()
        await asyncio.sleep(0.01)


async def due(bench: Bench) -> dict[str, int]:
    return {one.decode(): int(at) for one, at in await bench.client.zrange(bench.keys.due, 0, -1, withscores=True)}


# --- expires ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{}, {"delay_ms": 60_000}])
async def test_a_job_that_did_not_start_in_time_is_cancelled(store: Store, fields: dict[str, Any]) -> None:
    (job_id,) = await submit(store, new_job(expires=SOON, **fields))
    job = await ended(store, job_id)
    assert (job.status, job.reason, job.attempts) == (Status.CANCELLED, Reason.EXPIRED, 0)
    assert job.error == "expired: not started in time"
    assert job.finished_at_ms is not None
    assert job.expires_at_ms is not None
    assert job.finished_at_ms >= job.expires_at_ms == job.created_at_ms + 150


async def test_a_job_that_waits_for_others_expires_too(store: Store) -> None:
    parent, child = await submit(store, *(pair := jobs(2))[:1], new_job(expires=SOON, depends_on=after(pair[0].id)))
    assert ((await ended(store, child)).status, (await store.job(parent)).status) == (Status.CANCELLED, Status.PENDING)
    (got,) = await claim(store)
    await finish(store, got)
    assert (await store.job(child)).status is Status.CANCELLED


async def test_a_job_that_has_started_does_not_expire_any_more(bench: Bench) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job(expires=SOON))
    (got,) = await claim(store)
    assert await due(bench) == {}
    await asyncio.sleep(0.2)
    await store.upkeep.promote()
    await finish(store, got, FAILURE)
    assert (await store.job(job_id)).status is Status.SCHEDULED
    (again,) = await claim(store, wait=True)
    await finish(store, again)
    assert (await store.job(job_id)).status is Status.DONE


async def test_an_attempt_that_was_given_back_is_no_start(store: Store) -> None:
    (job_id,) = await submit(store, new_job(expires=SOON))
    (got,) = await claim(store)
    await store.attempts.release([(got.id, got.fence)])
    job = await ended(store, job_id)
    assert (job.status, job.reason) == (Status.CANCELLED, Reason.EXPIRED)


async def test_an_attempt_that_was_lost_was_a_start(bench: Bench) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job(expires=SOON))
    await claim(store)
    assert await reap_all(store) == 1
    assert await due(bench) == {}
    assert (await store.job(job_id)).status is Status.PENDING


async def test_what_has_expired_is_never_claimed_however_late_its_timer(bench: Bench) -> None:
    """More timers are due than one call looks at, and the claim comes upon the job before they are through."""
    store = bench.store()
    await store.submit(jobs(150, expires=PAST, queue="others"))
    (job_id,) = await submit(store, new_job(expires=Moment(at_ms=2)))
    assert await claim(store) == []
    job = await store.job(job_id)
    assert (job.status, job.reason) == (Status.CANCELLED, Reason.EXPIRED)


async def test_many_expired_jobs_at_the_head_do_not_look_like_an_empty_queue(store: Store) -> None:
    await store.submit(jobs(300, expires=Moment(after_ms=1)))
    (job_id,) = await submit(store, new_job())
    await asyncio.sleep(0.02)
    for number in range(10):
        claimed = await store.attempts.claim(ClaimRequest("w1", ["default"], 1, f"many:{number}"))
        if claimed.claims:
            break
        assert claimed.more
    assert [got.id for got in claimed.claims] == [job_id]


# --- deadline ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{}, {"delay_ms": 60_000}])
async def test_a_waiting_job_fails_at_its_deadline(store: Store, fields: dict[str, Any]) -> None:
    (job_id,) = await submit(store, new_job(deadline=SOON, **fields))
    job = await ended(store, job_id)
    assert (job.status, job.reason, job.exit_code) == (Status.FAILED, Reason.EXPIRED, None)
    assert job.error == "expired: not done by its deadline"


async def test_a_deadline_is_for_all_attempts_together_and_keeps_how_the_last_one_ended(store: Store) -> None:
    (job_id,) = await submit(store, new_job(deadline=Moment(after_ms=300), max_attempts=100))
    while (await store.job(job_id)).status is not Status.FAILED:
        for got in await claim(store):
            await finish(store, got, FAILURE)
        await asyncio.sleep(0.01)
    job = await store.job(job_id)
    assert (job.reason, job.exit_code) == (Reason.EXPIRED, 3)
    assert job.error == f"expired: not done by its deadline\n{FAILURE.error}"
    assert 1 < job.attempts < 100


@pytest.mark.parametrize("outcome", [Outcome(None, exit_code=0), FAILURE, Outcome(Reason.CANCELLED, signal=15)])
async def test_a_running_job_is_stopped_at_its_deadline_and_every_end_is_failed(store: Store, outcome: Outcome) -> None:
    (job_id,) = await submit(store, new_job(deadline=SOON))
    (got,) = await claim(store)
    await overrun(store, job_id, got.fence)
    assert (await store.job(job_id)).status is Status.RUNNING
    finished = await finish(store, got, outcome)
    assert (finished.verdict, finished.status) == (Verdict.ACCEPTED, Status.FAILED)
    job = await store.job(job_id)
    assert (job.reason, job.exit_code, job.signal) == (Reason.EXPIRED, outcome.exit_code, outcome.signal)
    assert (await finish(store, got, outcome)).verdict is Verdict.RECORDED


async def test_a_running_job_whose_deadline_passes_is_told_at_once(bench: Bench) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job(deadline=SOON))
    (got,) = await claim(store)
    cancels = store.attempts.cancels()
    told = asyncio.create_task(anext(cancels))
    await asyncio.sleep(0.2)  # subscribed, and the deadline has passed
    await store.upkeep.promote()
    assert await asyncio.wait_for(told, 5) == ("w1", job_id, got.fence)
    await cancels.aclose()  # type: ignore[attr-defined] # it is a generator


async def test_a_result_that_commits_before_the_deadline_stands(bench: Bench) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job(deadline=SOON))
    (got,) = await claim(store)
    await finish(store, got)
    assert await due(bench) == {}
    await asyncio.sleep(0.2)
    await store.upkeep.promote()
    assert (await store.job(job_id)).status is Status.DONE


@pytest.mark.parametrize("how", ["lost", "released"])
async def test_a_job_past_its_deadline_fails_also_when_its_worker_dies_or_gives_it_back(store: Store, how: str) -> None:
    (job_id,) = await submit(store, new_job(deadline=SOON, max_attempts=9))
    (got,) = await claim(store)
    await overrun(store, job_id, got.fence)
    if how == "lost":
        assert await reap_all(store) == 1
    else:
        await store.attempts.release([(got.id, got.fence)])
    job = await store.job(job_id)
    assert (job.status, job.reason) == (Status.FAILED, Reason.EXPIRED)


async def test_who_ignores_the_deadline_and_keeps_beating_loses_the_job(bench: Bench) -> None:
    store = bench.store(STUBBORN)
    (job_id,) = await submit(store, new_job(deadline=SOON))
    (got,) = await claim(store)
    while not (await store.upkeep.reap()).ended:
        await store.upkeep.promote()
        await store.attempts.heartbeat(WORKER, [(got.id, got.fence)])
        await asyncio.sleep(0.01)
    job = await store.job(job_id)
    assert (job.status, job.reason) == (Status.FAILED, Reason.EXPIRED)
    assert (await finish(store, got)).verdict is Verdict.LEASE_LOST


async def test_a_cancel_and_a_deadline_the_cancel_is_what_was_promised(store: Store) -> None:
    one, other = await submit(store, *jobs(2, deadline=SOON))
    first, second = await claim(store, limit=2)
    await store.cancel(one)
    await overrun(store, other, second.fence)
    await store.cancel(other)
    await store.upkeep.promote()
    for got in (first, second):
        await finish(store, got, FAILURE)
    ends = [await store.job(job_id) for job_id in (one, other)]
    assert [(job.status, job.reason, job.exit_code) for job in ends] == [(Status.CANCELLED, Reason.CANCELLED, 3)] * 2


async def test_what_depends_on_an_expired_job_goes_on(store: Store) -> None:
    late, failing, cancelling, other = new_job(deadline=SOON), *jobs(3)
    failing.depends_on = after(late.id, when=When.FAILED)
    other.depends_on = after(late.id)
    await store.submit([late, failing, cancelling, other])
    await ended(store, late.id)
    await store.upkeep.propagate()
    assert (await store.job(failing.id)).status is Status.PENDING
    assert (await store.job(other.id)).status is Status.SKIPPED


async def test_a_worker_that_finds_expired_jobs_has_their_dependents_visited(store: Store) -> None:
    """Else they would wait for a reaper."""
    late, child = new_job(expires=Moment(after_ms=1)), new_job()
    child.depends_on = after(late.id, when=When.FINISHED)
    await store.submit([late, child])
    await asyncio.sleep(0.02)
    exchanged = await store.attempts.finish([], ClaimRequest("w1", ["default"], 1, "b:1"))
    assert exchanged.propagating


# --- where they count from --------------------------------------------------------------------------------------------


async def test_times_count_from_the_submission_also_in_a_large_one(bench: Bench) -> None:
    store = bench.store()
    await store.submit(jobs(500, deadline=LATER, expires=Moment(at_ms=4_000_000_000_000)))
    page = await store.list_jobs(JobFilter(status=Status.PENDING), limit=1000)
    assert len(page.jobs) == 500
    assert {job.deadline_at_ms - job.created_at_ms for job in page.jobs if job.deadline_at_ms} == {60_000}
    assert {job.expires_at_ms for job in page.jobs} == {4_000_000_000_000}
    assert len(await due(bench)) == 1000


async def test_a_length_of_time_counts_anew_from_a_retry(store: Store) -> None:
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


async def test_a_dependent_that_is_armed_again_has_its_time_anew(store: Store) -> None:
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
    await store.upkeep.promote()
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
    await store.upkeep.promote()
    assert (await store.job(job_id)).status is Status.FAILED
    assert await due(bench) == {}


async def test_a_worker_that_waits_is_told_of_a_timer_before_all_others(bench: Bench) -> None:
    store = bench.store()
    await submit(store, new_job(delay_ms=60_000))
    request = ClaimRequest("w1", ["default"], 1, "b:1", park_ms=60_000)
    first = await store.attempts.claim(request)
    assert first.parked
    assert first.next_due_in_ms is not None
    (job_id,) = await submit(store, new_job(depends_on=(), delay_ms=50_000, expires=Moment(after_ms=40_000)))
    async with store.attempts.own_connection() as waiting:
        assert await store.attempts.news("w1", waiting, timeout_s=2) is not None
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
