"""The worker on a real store and server, where the two could misunderstand each other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.builders import new_job, submit
from tests.scripted_source import Until
from tests.servers import Bench
from workers.executor import Executor
from workers.worker import Worker
from workron.models import Status
from workron.settings import Settings
from workron.store import Store
from workron.store.policy import Policy
from workron.store.source import RedisSource

LEASE_S = 3.0
PATIENT = Policy(lease_ms=int(LEASE_S * 1000), pass_ms=300, retry_ms=20, stop_ms=500)


@pytest.fixture
async def bench(url: str, namespace: str) -> AsyncIterator[Bench]:  # overrides the one for all kinds of servers
    bench = Bench("real", url, namespace)
    yield bench
    await bench.aclose()


@asynccontextmanager
async def working(bench: Bench, *, slots: int = 4) -> AsyncIterator[Worker]:
    source = RedisSource(bench.store(PATIENT))
    async with Executor(kill_grace_s=0.2) as executor:
        worker = Worker(Settings(slots=slots, lease=LEASE_S), source, executor)
        task = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop_now()
            await asyncio.wait_for(task, 10)
            await source.aclose()


async def runs(store: Store, wait_until: Until) -> None:
    """Submit a job and wait until it is done, long before anybody looks without being told."""
    (job_id,) = await submit(store, new_job())

    async def done() -> bool:
        await store.maintenance.reap()
        await store.maintenance.promote()
        return (await store.job(job_id)).status is Status.DONE

    await wait_until(done, within_s=4)


async def test_free_slots_are_filled_while_another_job_runs(bench: Bench, wait_until: Until) -> None:
    store = bench.store(PATIENT)
    await submit(store, new_job(command="sleep 30"))
    async with working(bench) as worker:
        await wait_until(lambda: worker.held)
        await runs(store, wait_until)


async def test_a_worker_whose_place_in_the_line_was_lost_is_back_in_it_after_a_while(
    bench: Bench, wait_until: Until
) -> None:
    """It was woken by a call whose maker died, or Redis has lost that it was parked."""
    store = bench.store(PATIENT)
    async with working(bench, slots=1):
        await wait_until(lambda: bench.client.exists(bench.keys.parked("default")))
        await bench.client.delete(bench.keys.parked("default"))
        await wait_until(lambda: bench.client.exists(bench.keys.parked("default")), within_s=20)
        await runs(store, wait_until)


async def test_a_worker_works_on_when_its_waiting_connection_was_lost(bench: Bench, wait_until: Until) -> None:
    store = bench.store(PATIENT)
    async with working(bench, slots=1) as worker:
        for _ in range(3):
            await wait_until(lambda: worker._first.parked is not None)
            for client in await bench.client.client_list():
                if "b" in client["flags"]:
                    await bench.client.client_kill_filter(_id=client["id"])
            await runs(store, wait_until)


async def test_a_job_that_cannot_be_read_does_not_stop_its_worker(bench: Bench, wait_until: Until) -> None:
    store = bench.store(PATIENT)
    (bad,) = await submit(store, new_job(max_attempts=1))
    await bench.client.hset(bench.keys.job(bad), "env", "{damaged")
    async with working(bench):

        async def failed() -> bool:
            return bool(await bench.client.hget(bench.keys.job(bad), "status") == b"failed")

        await wait_until(failed)
        await runs(store, wait_until)


async def test_an_unreadable_message_in_the_mailbox_does_not_end_the_worker(bench: Bench, wait_until: Until) -> None:
    store = bench.store(PATIENT)
    async with working(bench) as worker:
        await wait_until(lambda: bench.client.exists(bench.keys.parked("default")))
        await bench.client.rpush(bench.keys.inbox(worker.id), "x")
        await runs(store, wait_until)
