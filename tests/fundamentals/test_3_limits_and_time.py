"""Chapter 3: what limits the jobs that start, and what time does to them."""

import asyncio

import pytest

from tests.builders import claim, finish, jobs, new_job, submit
from tests.queue_limits import limit_queue
from tests.servers import Bench
from workron import ids
from workron.errors import QueueFull
from workron.models import Concurrency, Idempotency, Moment, OnConflict, QueueChange, Reason, Status, Unique
from workron.store import Store
from workron.store.policy import Policy


async def test_a_submission_that_is_sent_twice_is_stored_once(store: Store) -> None:
    """A client that received no answer repeats its request with the same Idempotency-Key."""
    key = Idempotency("key-1", "order-4711", fingerprint="hash-of-the-body")
    first = await store.submit([new_job()], idempotency=key)
    again = await store.submit([new_job()], idempotency=key)
    assert again.ids == first.ids


async def test_a_unique_key_belongs_to_one_job_at_a_time(store: Store) -> None:
    nightly = Unique("nightly report", on_conflict=OnConflict.RETURN)
    first = await store.submit([new_job(unique=nightly)])
    second = await store.submit([new_job(unique=nightly)])
    assert second.ids == first.ids
    (claimed,) = await claim(store)
    await finish(store, claimed)
    third = await store.submit([new_job(unique=nightly)])
    assert third.ids != first.ids


async def test_a_concurrency_key_limits_how_many_jobs_run_at_once(store: Store) -> None:
    await submit(store, *jobs(3, concurrency=Concurrency("customer-7", limit=1)))
    (running,) = await claim(store, limit=3)
    assert await claim(store, limit=3) == []
    await finish(store, running)
    assert len(await claim(store, limit=3)) == 1


async def test_a_paused_queue_accepts_jobs_and_starts_none(store: Store) -> None:
    await store.change_queue("mail", QueueChange(paused=True))
    await submit(store, new_job(queue="mail"))
    assert await claim(store, queues=["mail"]) == []
    await store.change_queue("mail", QueueChange(paused=False))
    assert len(await claim(store, queues=["mail"])) == 1


async def test_a_full_queue_refuses_further_jobs_and_keeps_none_of_them(store: Store) -> None:
    await limit_queue(store, "mail", max_pending=2)
    await submit(store, *jobs(2, queue="mail"))
    with pytest.raises(QueueFull):
        await submit(store, *jobs(2, queue="mail"))
    assert (await store.queue("mail")).counts[Status.PENDING] == 2


async def test_a_delayed_job_is_scheduled_and_then_pending(store: Store) -> None:
    (job_id,) = await submit(store, new_job(delay_ms=50))
    assert (await store.job(job_id)).status is Status.SCHEDULED
    (claimed,) = await claim(store, wait=True)
    assert claimed.id == job_id


async def test_a_job_that_has_not_started_in_time_is_cancelled(store: Store) -> None:
    (job_id,) = await submit(store, new_job(expires=Moment(after_ms=1)))
    await asyncio.sleep(0.01)
    await store.maintenance.promote()  # the reaper does so all the time
    job = await store.job(job_id)
    assert (job.status, job.reason) == (Status.CANCELLED, Reason.EXPIRED)


async def test_finished_jobs_are_deleted_after_their_retention(bench: Bench) -> None:
    store = bench.store(Policy(retention_done_ms=0))
    (job_id,) = await submit(store, new_job())
    (claimed,) = await claim(store)
    await finish(store, claimed)
    await store.maintenance.sweep()
    assert await store.jobs([job_id]) == [None]


async def test_the_doctor_finds_nothing_wrong_after_all_that(store: Store) -> None:
    """`workron doctor` compares all that is stored with itself: lists, indexes, counts and jobs."""
    await submit(store, *jobs(3, concurrency=Concurrency("customer-7", limit=1)))
    (claimed,) = await claim(store)
    await finish(store, claimed)
    await store.submit([new_job(id=job_id) for job_id in ids.new_ids(3)], as_workflow=True)
    assert (await store.doctor.examine()).faults == ()
