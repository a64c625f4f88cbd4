"""After an accepted cancel every end is `cancelled`: whatever comes between, and whoever does not listen."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from tests.builders import WORKER, after, claim, finish, jobs, new_job, reap_all, submit
from tests.servers import Bench
from workron.errors import Conflict
from workron.models import (
    Beat,
    Cancelled,
    Claim,
    ClaimRequest,
    Moment,
    Outcome,
    Reason,
    Status,
    Verdict,
)
from workron.store import Store
from workron.store.policy import Policy

STUBBORN = Policy(lease_ms=60_000, pass_ms=100, stop_ms=500)
"""A lease much longer than what a client that does not listen may take."""


async def worker_reports(store: Store, got: Claim) -> None:
    await finish(store, got, Outcome(Reason.EXIT_CODE, exit_code=3))


async def worker_is_lost(store: Store, _: Claim) -> None:
    await reap_all(store)


async def worker_gives_back(store: Store, got: Claim) -> None:
    await store.attempts.release([(got.id, got.fence)])


async def guardian_has_killed(store: Store, got: Claim) -> None:
    await finish(store, got, Outcome(Reason.WORKER_LOST, signal=9))


async def timeout_was_ignored(store: Store, got: Claim) -> None:
    while not (await store.maintenance.reap()).ended:
        await store.attempts.heartbeat(WORKER, [(got.id, got.fence)])
        await asyncio.sleep(0.01)


ENDS = (worker_reports, worker_is_lost, worker_gives_back, guardian_has_killed, timeout_was_ignored)


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
async def test_however_an_accepted_cancel_ends_it_is_cancelled(
    store: Store, end: Callable[[Store, Claim], Awaitable[None]]
) -> None:
    """Also at a deadline, and with attempts left."""
    (job_id,) = await submit(store, new_job(timeout_ms=1, deadline=Moment(after_ms=1_000), max_attempts=9))
    (got,) = await claim(store)
    assert await store.cancel(job_id) is Cancelled.CANCELLING
    await store.attempts.heartbeat(WORKER, [(got.id, got.fence)])
    await asyncio.sleep(1.05)
    await store.maintenance.promote()
    await end(store, got)
    job = await store.job(job_id)
    assert (job.status, job.reason) == (Status.CANCELLED, Reason.CANCELLED)
    assert job.exit_code == (3 if end is worker_reports else None)


async def test_an_undelivered_claim_of_a_cancelled_job_ends_it(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    request = ClaimRequest("w1", ["default"], 1, "b:1")
    await store.attempts.claim(request)
    await store.cancel(job_id)
    await store.attempts.claim(replace(request, limit=0))
    assert (await store.job(job_id)).status is Status.CANCELLED


async def test_a_worker_that_ignores_a_cancel_and_sends_heartbeats_loses_the_job_before_its_lease_ends(
    bench: Bench,
) -> None:
    store = bench.store(STUBBORN)
    (job_id,) = await submit(store, new_job(max_attempts=9))
    (got,) = await claim(store)
    await store.cancel(job_id)
    asked_at = time.monotonic()
    beats = []
    while True:
        beats.append((await store.attempts.heartbeat(WORKER, [(got.id, got.fence)])).attempts[got.fence])
        if (await store.maintenance.reap()).ended:
            break
        await asyncio.sleep(0.02)
        assert time.monotonic() - asked_at < 30
    assert set(beats) - {Beat.LOST} == {Beat.CANCEL}
    job = await store.job(job_id)
    assert (job.status, job.reason) == (Status.CANCELLED, Reason.CANCELLED)
    assert job.error == "cancelled: the worker did not stop the command in time"
    assert (await finish(store, got)).verdict is Verdict.LEASE_LOST


async def test_a_worker_that_ignores_a_timeout_and_sends_heartbeats_loses_the_attempt_before_its_lease_ends(
    bench: Bench,
) -> None:
    store = bench.store(STUBBORN)
    (job_id,) = await submit(store, new_job(timeout_ms=1, max_attempts=1))
    (got,) = await claim(store)
    started = time.monotonic()
    while not (await store.maintenance.reap()).ended:
        await store.attempts.heartbeat(WORKER, [(got.id, got.fence)])
        await asyncio.sleep(0.02)
        assert time.monotonic() - started < 30
    job = await store.job(job_id)
    assert (job.status, job.reason) == (Status.FAILED, Reason.TIMEOUT)


async def test_a_lease_is_as_long_as_ever_where_nothing_is_to_be_stopped(bench: Bench) -> None:
    store = bench.store(STUBBORN)
    (job_id,) = await submit(store, new_job(timeout_ms=60_000))
    (got,) = await claim(store)
    before = await bench.client.zscore(bench.keys.leases, job_id)
    await asyncio.sleep(0.01)
    await store.attempts.heartbeat(WORKER, [(got.id, got.fence)])
    assert await bench.client.zscore(bench.keys.leases, job_id) > before


async def test_the_worker_that_has_the_job_is_notified_at_once_by_its_fence(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    cancels = store.attempts.cancels()
    told = asyncio.create_task(anext(cancels))
    while not told.done():  # again, until the subscription stands
        await store.cancel(job_id)
        await asyncio.sleep(0.01)
    assert told.result() == ("w1", job_id, got.fence)
    await cancels.aclose()  # type: ignore[attr-defined] # it is a generator


async def test_a_message_of_an_earlier_attempt_names_a_stale_fence(store: Store) -> None:
    (job_id,) = await submit(store, new_job(max_attempts=1))
    (first,) = await claim(store)
    await store.cancel(job_id)
    await finish(store, first, Outcome(Reason.CANCELLED, signal=15))
    await store.retry(job_id, run=1)
    (second,) = await claim(store)
    assert second.fence > first.fence
    beats = (await store.attempts.heartbeat(WORKER, [(job_id, second.fence)])).attempts
    assert beats == {second.fence: Beat.OK}


async def test_delayed_copies_of_a_cancel_and_a_retry_do_not_hit_a_later_run(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    await store.cancel(job_id, run=1)
    await store.retry(job_id, run=1)
    for late in (store.cancel, store.retry):
        with pytest.raises(Conflict, match="run 2"):
            await late(job_id, run=1)
    assert (await store.job(job_id)).status is Status.PENDING


async def test_two_cancels_at_once_are_one(store: Store) -> None:
    waiting, running = await submit(store, *jobs(2))
    await claim(store)
    ends = await asyncio.gather(*(store.cancel(job_id, run=1) for job_id in (waiting, running) * 5))
    assert set(ends[::2]) | set(ends[1::2]) == {Cancelled.CANCELLED, Cancelled.CANCELLING}
    asked_at = (await store.job(waiting)).cancel_requested_at_ms
    await asyncio.sleep(0.01)
    await store.cancel(waiting)
    assert (await store.job(waiting)).cancel_requested_at_ms == asked_at


async def test_a_concurrent_result_and_cancel_agree_on_their_order(store: Store) -> None:
    for _ in range(20):
        (job_id,) = await submit(store, new_job())
        (got,) = await claim(store)

        async def cancel(job_id: str = job_id) -> bool:
            try:
                await store.cancel(job_id)
            except Conflict:
                return False
            return True

        accepted, finished = await asyncio.gather(cancel(), finish(store, got))
        job = await store.job(job_id)
        assert finished.verdict is Verdict.ACCEPTED
        assert job.exit_code == 0
        assert job.status is (Status.CANCELLED if accepted else Status.DONE)


async def test_a_job_that_waits_for_its_next_attempt_is_cancelled_at_once(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    await finish(store, got, Outcome(Reason.EXIT_CODE, exit_code=3))
    assert await store.cancel(job_id) is Cancelled.CANCELLED
    await asyncio.sleep(0.05)
    await store.maintenance.promote()
    assert await claim(store) == []
    assert (await finish(store, got)).verdict is Verdict.RECORDED


async def test_a_job_that_waits_for_others_is_cancelled_and_stays_so(store: Store) -> None:
    parent, child = jobs(2)
    child.depends_on = after(parent.id)
    await store.submit([parent, child])
    assert await store.cancel(child.id) is Cancelled.CANCELLED
    (got,) = await claim(store)
    await finish(store, got)
    assert (await store.job(child.id)).status is Status.CANCELLED
    assert await claim(store) == []
