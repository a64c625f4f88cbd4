"""Timers of deadlines and expiries: what they count from, and how they stand in `due`."""

import asyncio

import pytest

from tests.array_jobs import array_job, array_of, run_all, tasks_of
from tests.builders import WORKER, after, claim, finish, jobs, new_job, reap_all, submit
from tests.expiring import FAILURE, LATER, PAST, SOON, due, ended, fire_again, overrun, pass_by
from tests.servers import Bench
from workron.errors import Conflict
from workron.models import Beat, ClaimRequest, JobFilter, Moment, Reason, Status
from workron.models.retry import RetryPolicy
from workron.redis import formats
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


async def test_a_duration_counts_again_from_a_retry(bench: Bench) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job(deadline=LATER, expires=LATER))
    await pass_by(bench, "expires", job_id)
    first = await ended(store, job_id)
    await store.retry(job_id)
    again = await store.job(job_id)
    assert (again.status, again.reason) == (Status.PENDING, None)
    assert first.finished_at_ms is not None
    assert again.expires_at_ms is not None
    assert again.expires_at_ms >= first.finished_at_ms + 60_000
    (got,) = await claim(store)
    await pass_by(bench, "deadline", job_id)
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
    child.depends_on, child.expires = after(parent.id), LATER
    await store.submit([parent, child])
    first = (await store.job(child.id)).expires_at_ms
    await asyncio.sleep(0.02)
    (got,) = await claim(store)
    await finish(store, got, FAILURE)
    assert (await store.job(child.id)).status is Status.SKIPPED
    await store.retry(parent.id)
    (got,) = await claim(store)
    await finish(store, got)
    again = (await store.job(child.id)).expires_at_ms
    assert first is not None
    assert again is not None
    assert again >= first + 20
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


async def test_an_expired_job_had_its_old_place_in_its_queue_after_a_retry(store: Store) -> None:
    late, other = await submit(store, new_job(expires=PAST), new_job())
    assert (await ended(store, late)).status is Status.CANCELLED
    await store.retry(late)
    assert [got.id for got in await claim(store, limit=5)] == [other, late]


async def test_a_cancelled_job_was_reported_as_expiring_at_its_deadline(bench: Bench) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job(deadline=LATER))
    (got,) = await claim(store)
    await store.cancel(job_id)
    await pass_by(bench, "deadline", job_id)
    await store.maintenance.promote()
    events = [set(entry) for _, entry in await bench.client.xrange(bench.keys.events)]
    assert (events.count({b"cancelling"}), events.count({b"expiring"})) == (1, 0)
    await finish(store, got, FAILURE)
    assert (await store.job(job_id)).reason is Reason.CANCELLED


# --- a timer that fires a second time, or that should be gone ---------------------------------------------------------


async def test_a_deadline_that_fired_a_second_time_gave_a_running_command_more_time_to_stop(bench: Bench) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job(deadline=LATER))
    await claim(store)
    await bench.client.hset(bench.keys.job(job_id), "expired_at", 5)
    await pass_by(bench, "deadline", job_id)
    await store.maintenance.promote()
    assert await bench.client.hget(bench.keys.job(job_id), "expired_at") == b"5"
    assert await due(bench) == {}


async def test_a_deadline_that_fired_a_second_time_walked_over_all_tasks_of_an_array_again(bench: Bench) -> None:
    store = bench.store()
    array = array_job(3, deadline=LATER)
    await submit(store, array)
    (running,) = await claim(store)
    for _ in range(2):
        await pass_by(bench, "deadline", array.id)
        await store.maintenance.promote()
        walk = await bench.client.hget(bench.keys.array(array.id), "walk")
        await store.maintenance.tidy()
    assert walk is None
    await finish(store, running, FAILURE)
    assert (await store.job(array.id)).reason is Reason.EXPIRED


async def test_a_deadline_that_fired_a_second_time_ended_an_array_as_one_that_was_not_started(bench: Bench) -> None:
    store = bench.store()
    array = array_job(3, deadline=LATER)
    await submit(store, array)
    for _ in range(2):
        await pass_by(bench, "deadline", array.id)
        await store.maintenance.promote()
    await store.maintenance.tidy()
    job = await store.job(array.id)
    assert (job.status, job.reason) == (Status.FAILED, Reason.EXPIRED)


async def test_an_array_that_was_cancelled_ended_as_expired(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time to start passed before its tasks were visited."""

    async def dies(*_: object) -> None:
        pass

    store = bench.store()
    array = array_job(3, expires=LATER)
    await submit(store, array)
    monkeypatch.setattr("workron.store.arrays.Arrays.work_on_quietly", dies)
    await store.cancel(array.id)
    await pass_by(bench, "expires", array.id)
    await store.maintenance.promote()
    await store.maintenance.tidy()
    job = await store.job(array.id)
    assert (job.status, job.reason) == (Status.CANCELLED, Reason.CANCELLED)


async def test_an_array_was_cancelled_after_its_first_task_by_the_time_to_start_it(bench: Bench) -> None:
    store = bench.store()
    array = array_job(2, max_parallel=1, expires=LATER)
    await submit(store, array)
    (first,) = await claim(store)
    await finish(store, first)
    await pass_by(bench, "expires", array.id)
    await store.maintenance.promote()
    await store.maintenance.tidy()
    assert [one.id for one in await run_all(store)] == tasks_of(array)[1:]
    assert (await array_of(store, array)).counts[Status.DONE] == 2


@pytest.mark.parametrize("state", ["running", "scheduled", "pending"])
async def test_a_job_that_had_started_was_ended_by_the_time_to_start_it(bench: Bench, state: str) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job(expires=LATER, retry=RetryPolicy(delay_ms=600_000)))
    (got,) = await claim(store)
    if state == "scheduled":
        await finish(store, got, FAILURE)
    elif state == "pending":
        assert await reap_all(store) == 1
    await pass_by(bench, "expires", job_id)
    await store.maintenance.promote()
    assert (await store.job(job_id)).status == state
    assert await bench.client.hget(bench.keys.job(job_id), "expired_at") is None


@pytest.mark.parametrize("kind", ["deadline", "expires"])
async def test_a_job_that_had_ended_was_ended_again_by_its_timer(bench: Bench, kind: str) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job(**{kind: LATER}))
    await finish(store, *(await claim(store)))
    before = await store.job(job_id)
    await fire_again(bench, kind, job_id)
    await store.maintenance.promote()
    assert await store.job(job_id) == before
    assert await due(bench) == {}
    assert await bench.client.smembers(bench.keys.quarantine) == set()


@pytest.mark.damaged
async def test_a_damaged_array_is_reported_when_its_deadline_passes(bench: Bench) -> None:
    store = bench.store()
    array = array_job(3, deadline=LATER)
    (other,) = await submit(store, new_job(deadline=LATER))
    await submit(store, array)
    await bench.client.delete(bench.keys.array(array.id))
    await bench.client.set(bench.keys.array(array.id), "no hash")
    for job_id in (array.id, other):
        await pass_by(bench, "deadline", job_id)
    await store.maintenance.promote()
    assert (await store.job(other)).status is Status.FAILED
    assert await bench.client.smembers(bench.keys.quarantine) == {array.id.encode()}
    assert await due(bench) == {}


async def test_a_job_that_waits_again_was_started_after_its_deadline(bench: Bench) -> None:
    """More timers are due than one claim handles, and the job has had an attempt."""
    store = bench.store()
    (job_id,) = await submit(store, new_job(deadline=LATER))
    await claim(store)
    assert await reap_all(store) == 1
    await store.submit(jobs(150, expires=PAST, queue="others"))
    await bench.client.hset(bench.keys.job(job_id), "deadline_at", 2)
    await bench.client.zadd(bench.keys.due, {formats.timer("deadline", job_id): 2})
    assert await claim(store) == []
    assert (await store.job(job_id)).reason is Reason.EXPIRED
