"""The life of one job in the store: submit, claim, finish, retry."""

import asyncio

import pytest

from tests.builders import claim, finish, new_job, submit
from workron.errors import NotFound
from workron.models import Outcome, Reason, Status, Verdict
from workron.store import Store


async def test_a_submitted_job_is_pending_and_keeps_its_fields(store: Store) -> None:
    job = new_job(command="echo hi", name="greet", priority=7, env={"A": "1"}, cwd="/tmp", timeout_ms=1500)
    await store.submit([job])
    stored = await store.job(job.id)
    assert (stored.status, stored.command, stored.name, stored.priority) == (Status.PENDING, "echo hi", "greet", 7)
    assert (stored.env, stored.cwd, stored.timeout_ms, stored.attempts, stored.run) == ({"A": "1"}, "/tmp", 1500, 0, 1)


async def test_an_unknown_job_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        await store.job("0000000000000000000000")


async def test_a_claimed_job_is_running_with_a_fence_and_a_heartbeat(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    job = await store.job(job_id)
    assert (got.id, got.attempt, job.status, job.worker) == (job_id, 1, Status.RUNNING, "w1")
    assert job.last_heartbeat_at_ms is not None
    assert got.fence > 1_700_000_000_000


async def test_a_successful_job_is_done_after_one_attempt(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    assert (await finish(store, got)).verdict is Verdict.ACCEPTED
    job = await store.job(job_id)
    assert (job.status, job.exit_code, job.attempts, job.reason) == (Status.DONE, 0, 1, None)
    assert job.finished_at_ms is not None


async def test_finishing_twice_is_answered_with_what_was_recorded(store: Store) -> None:
    await submit(store, new_job())
    (got,) = await claim(store)
    await finish(store, got)
    again = await finish(store, got, Outcome(Reason.EXIT_CODE, exit_code=1))
    assert (again.verdict, again.status) == (Verdict.RECORDED, Status.DONE)


async def test_a_failing_job_runs_three_times_and_keeps_its_error(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    for attempt in (1, 2, 3):
        (got,) = await claim(store, wait=True)
        assert got.attempt == attempt
        await finish(store, got, Outcome(Reason.EXIT_CODE, exit_code=7, error=f"exit code 7, attempt {attempt}"))
    job = await store.job(job_id)
    assert (job.status, job.reason, job.exit_code, job.attempts) == (Status.FAILED, Reason.EXIT_CODE, 7, 3)
    assert job.error == "exit code 7, attempt 3"
    assert await claim(store) == []


async def test_a_job_that_fails_once_is_done_after_two_attempts_and_shows_no_error(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    (first,) = await claim(store)
    await finish(store, first, Outcome(Reason.SIGNAL, signal=9, error="killed"))
    assert (await store.job(job_id)).status is Status.SCHEDULED
    (second,) = await claim(store, wait=True)
    assert (await finish(store, first)).verdict is Verdict.RECORDED
    await finish(store, second)
    job = await store.job(job_id)
    assert (job.status, job.attempts, job.error, job.signal, job.reason) == (Status.DONE, 2, None, None, None)


async def test_five_jobs_and_three_workers_make_one_attempt_each(store: Store) -> None:
    ids = await submit(store, *(new_job() for _ in range(5)))
    claims = [got for worker in ("w1", "w2", "w3") for got in await claim(store, worker=worker, limit=2)]
    assert sorted(got.id for got in claims) == sorted(ids)
    for got in claims:
        await finish(store, got)
    jobs = await store.jobs(ids)
    assert [(job.status, job.attempts) for job in jobs if job] == [(Status.DONE, 1)] * 5


async def test_thirty_claimers_of_twenty_jobs_get_twenty_distinct_ones(store: Store) -> None:
    ids = await submit(store, *(new_job() for _ in range(20)))
    claims = await asyncio.gather(*(claim(store, worker=f"w{n}") for n in range(30)))
    got = [one.id for some in claims for one in some]
    assert sorted(got) == sorted(ids)


async def test_fences_grow_with_every_claim(store: Store) -> None:
    await submit(store, *(new_job() for _ in range(10)))
    fences = [got.fence for _ in range(5) for got in await claim(store, limit=2)]
    assert fences == sorted(set(fences))


async def test_higher_priorities_come_first_and_equal_ones_in_order(store: Store) -> None:
    ids = await submit(store, *(new_job(priority=p) for p in (5, 9, 5, 1, 9)))
    order = [got.id for got in await claim(store, limit=5)]
    assert order == [ids[1], ids[4], ids[0], ids[2], ids[3]]


async def test_queues_are_served_in_the_order_named(store: Store) -> None:
    low, high = await submit(store, new_job(queue="low"), new_job(queue="high"))
    assert await claim(store, queues=["other"]) == []
    assert [got.id for got in await claim(store, queues=["high", "low"], limit=2)] == [high, low]


async def test_a_delayed_job_waits_and_then_runs(store: Store) -> None:
    (job_id,) = await submit(store, new_job(delay_ms=150))
    assert (await store.job(job_id)).status is Status.SCHEDULED
    assert await claim(store) == []
    (got,) = await claim(store, wait=True)
    assert got.id == job_id


async def test_counts_of_a_queue_are_exact(store: Store) -> None:
    await submit(store, new_job(), new_job(), new_job(delay_ms=60_000))
    (got,) = await claim(store)
    await finish(store, got)
    (queue,) = await store.queues()
    counts = {status: n for status, n in queue.counts.items() if n}
    assert counts == {Status.DONE: 1, Status.PENDING: 1, Status.SCHEDULED: 1}
