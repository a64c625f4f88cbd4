"""Deadlines and expiries: a job whose time has run out ends as `expired`, in whatever state that finds it."""

import asyncio
import time
from typing import Any

import pytest

from tests.builders import WORKER, after, claim, finish, jobs, new_job, reap_all, submit
from tests.expiring import FAILURE, PAST, SOON, due, ended, overrun
from tests.servers import Bench
from workron.errors import Conflict
from workron.models import ClaimRequest, Moment, Outcome, Reason, Status, Verdict, When
from workron.store import Store
from workron.store.policy import Policy

STUBBORN = Policy(lease_ms=60_000, pass_ms=100, stop_ms=500)


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
    await store.maintenance.promote()
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


@pytest.mark.parametrize(
    ("outcome", "kept"),
    [
        (Outcome(Reason.EXIT_CODE, exit_code=3, error="cancelled by the customer"), "\ncancelled by the customer"),
        (Outcome(Reason.CANCELLED, signal=15, error="cancelled\ncancelled 7 of 9 orders"), "\ncancelled 7 of 9 orders"),
        (Outcome(Reason.CANCELLED, signal=15, error="cancelled"), ""),
    ],
)
async def test_an_error_that_begins_with_cancelled_lost_that_word_after_a_deadline(
    bench: Bench, outcome: Outcome, kept: str
) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job(deadline=Moment(after_ms=3_600_000)))
    (got,) = await claim(store)
    await bench.client.hset(bench.keys.job(job_id), "expired_at", 1)
    await finish(store, got, outcome)
    job = await store.job(job_id)
    assert (job.reason, job.error) == (Reason.EXPIRED, f"expired: not done by its deadline{kept}")


@pytest.mark.parametrize("error", ["stopped at row 17", "stopped at row 17\ncancelled", "cancelled at 17\n16 done"])
async def test_the_report_on_a_cancelled_attempt_was_lost_after_a_deadline(bench: Bench, error: str) -> None:
    """The first line of an error was taken for the word of our own worker, whatever it said."""
    store = bench.store()
    (job_id,) = await submit(store, new_job(deadline=Moment(after_ms=3_600_000)))
    (got,) = await claim(store)
    await bench.client.hset(bench.keys.job(job_id), "expired_at", 1)
    await finish(store, got, Outcome(Reason.CANCELLED, signal=15, error=error))
    assert (await store.job(job_id)).error == f"expired: not done by its deadline\n{error}"


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


async def test_a_passed_deadline_reaches_a_running_job_at_once(bench: Bench) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job(deadline=SOON))
    (got,) = await claim(store)
    cancels = store.attempts.cancels()
    told = asyncio.create_task(anext(cancels))
    await asyncio.sleep(0.2)  # subscribed, and the deadline has passed
    await store.maintenance.promote()
    assert await asyncio.wait_for(told, 5) == ("w1", job_id, got.fence)
    await cancels.aclose()  # type: ignore[attr-defined] # it is a generator


async def test_a_result_that_commits_before_the_deadline_stands(bench: Bench) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job(deadline=SOON))
    (got,) = await claim(store)
    await finish(store, got)
    assert await due(bench) == {}
    await asyncio.sleep(0.2)
    await store.maintenance.promote()
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


async def test_a_worker_that_ignores_the_deadline_and_sends_heartbeats_loses_the_job(bench: Bench) -> None:
    store = bench.store(STUBBORN)
    (job_id,) = await submit(store, new_job(deadline=SOON))
    (got,) = await claim(store)
    started = time.monotonic()
    while not (await store.maintenance.reap()).ended:
        assert time.monotonic() - started < 30
        await store.maintenance.promote()
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
    await store.maintenance.promote()
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
    await store.maintenance.propagate()
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


async def test_a_job_that_failed_while_it_waited_never_heard_how_its_parent_ended_and_waited_for_ever(
    store: Store,
) -> None:
    grandparent, parent = new_job(max_attempts=1), new_job()
    parent.depends_on = after(grandparent.id)
    child = new_job(depends_on=after(parent.id), deadline=SOON)
    await submit(store, grandparent, parent, child)
    assert (await ended(store, child.id)).status is Status.FAILED
    (claimed,) = await claim(store)
    await finish(store, claimed, FAILURE)
    assert (await store.job(parent.id)).status is Status.SKIPPED
    with pytest.raises(Conflict, match=parent.id):
        await store.retry(child.id)
    await store.retry(grandparent.id)
    for _ in range(2):
        await finish(store, *(await claim(store)))
    await store.retry(child.id)
    (last,) = await claim(store)
    assert last.id == child.id
    await finish(store, last)
