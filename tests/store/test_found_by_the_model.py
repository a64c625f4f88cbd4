"""Faults that the model of the scheduler (tests/model) found in the store."""

import asyncio

from builders import after, claim, jobs, new_job, submit
from expiring import PAST, changed
from servers import Bench
from workflows import start

from workron.models import Concurrency, OnFailure, Status
from workron.store import Store


async def test_a_stop_by_a_missed_deadline_counts_the_jobs_of_concurrency_keys(bench: Bench, store: Store) -> None:
    late, other = jobs(2)
    late.deadline, late.delay_ms = PAST, 60_000
    other.concurrency, other.delay_ms = Concurrency("k", 1), 60_000
    await start(store, late, other, on_failure=OnFailure.STOP)
    await changed(store, late.id, Status.FAILED)
    assert (await store.job(other.id)).status is Status.CANCELLED
    assert not await bench.client.exists(bench.keys.concurrency("k"))
