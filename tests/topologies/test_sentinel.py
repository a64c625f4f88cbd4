"""A primary, its replicas and three sentinels: calls find the primary, before a failover and after it."""

import asyncio
import signal
from pathlib import Path

import pytest
from builders import claim, finish, new_job, submit
from conftest import WaitUntil

from tests.chaos.deployment import Size
from tests.chaos.grounds import KEYS
from tests.chaos.harness import Run
from tests.chaos.topologies import Failover, SafeFailover
from tests.topologies.conftest import Placed
from workron.connection import Connection
from workron.errors import StoreUnavailable
from workron.models import Status
from workron.store import Store

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(180)]
SMALL = Size(apis=2, workers=2, http_workers=1, reapers=1)
failover = pytest.mark.parametrize("placed", [Failover], indirect=True)
safe_failover = pytest.mark.parametrize("placed", [SafeFailover], indirect=True)


@failover
async def test_after_the_death_of_the_primary_and_of_the_next_calls_go_to_who_took_over(
    placed: Placed, wait_until: WaitUntil
) -> None:
    store = placed.store()
    first = placed.ground.primary
    (job_id,) = await submit(store, new_job())
    heard: list[str] = []
    listening = asyncio.create_task(listen(placed.connection(), heard))
    async with placed.connection().own() as own:
        waiting = asyncio.create_task(wait_in_line(own))
        await wait_until(lambda: publish(placed, heard))
        await placed.ground.move()
        await placed.ground.move()
        assert placed.ground.primary is not first
        (got,) = await claim(store)
        await finish(store, got)
        assert (await store.job(job_id)).status is Status.DONE
        heard.clear()
        await wait_until(lambda: publish(placed, heard))
        await placed.ground.primary.ask("RPUSH", f"{KEYS.prefix}line", "news")
        assert (await asyncio.wait_for(waiting, 20))[1] == b"news"
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


async def listen(connection: Connection, heard: list[str]) -> None:
    while True:
        try:
            async for message in connection.messages(f"{KEYS.prefix}channel"):
                heard.append(message)
        except StoreUnavailable:
            await asyncio.sleep(0.1)


async def publish(placed: Placed, heard: list[str]) -> bool:
    await placed.ground.primary.ask("PUBLISH", f"{KEYS.prefix}channel", "hello")
    return bool(heard)


async def wait_in_line(own: Connection) -> list[bytes]:
    while True:
        try:
            answer = await own.call("BLPOP", f"{KEYS.prefix}line", 2)
        except StoreUnavailable:
            await asyncio.sleep(0.1)
            continue
        if answer:
            return list(answer)


@failover
async def test_a_primary_that_no_replica_hears_of_accepts_jobs_that_are_gone_after_a_failover(placed: Placed) -> None:
    store = placed.store()
    (kept,) = await submit(store, new_job())
    await all_have(placed, kept)
    freeze_replicas(placed)
    lost = await submit(store, *(new_job() for _ in range(10)))
    await fail_over(placed)
    found = [job and job.id for job in await store.jobs([kept, *lost])]
    assert found == [kept] + [None] * 10


@safe_failover
async def test_a_primary_that_no_replica_hears_of_refuses_jobs_if_told_to_and_none_is_lost_then(placed: Placed) -> None:
    store, impatient = placed.store(), placed.store(budget_s=0.5)
    (kept,) = await submit(store, new_job())
    await all_have(placed, kept)
    freeze_replicas(placed)
    accepted = await submit_until_refused(impatient)
    with pytest.raises(StoreUnavailable, match="NOREPLICAS"):
        await submit(impatient, new_job(id="0123456789abcdefghijkl"))
    await fail_over(placed)
    found = {job.id for job in await store.jobs([kept, *accepted, "0123456789abcdefghijkl"]) if job}
    assert kept in found
    assert "0123456789abcdefghijkl" not in found


async def submit_until_refused(store: Store) -> list[str]:
    accepted: list[str] = []
    async with asyncio.timeout(20):
        while True:
            try:
                accepted += await submit(store, new_job())
            except StoreUnavailable:
                return accepted
            await asyncio.sleep(0.05)


async def all_have(placed: Placed, job_id: str) -> None:
    for node in placed.ground.nodes:

        async def has() -> bool:
            return bool(await node.ask("EXISTS", KEYS.job(job_id)))  # noqa: B023 - it is over before the next one

        await node.until(has, "the job on the replica")


def freeze_replicas(placed: Placed) -> None:
    for node in placed.ground.nodes:
        if node is not placed.ground.primary:
            node.signal(signal.SIGSTOP)


async def fail_over(placed: Placed) -> None:
    """Kill the primary, then let the replicas go on."""
    dead = placed.ground.primary
    dead.kill()
    for node in placed.ground.nodes:
        node.signal(signal.SIGCONT)
    assert isinstance(placed.ground, Failover)
    await placed.ground.another_than(dead)
    await dead.start()
    await placed.ground.settled()


async def test_failovers_under_load_lose_nothing_but_what_no_replica_had_heard_of(tmp_path: Path) -> None:
    run = Run(tmp_path, seed=6, seconds=20, topology="sentinel-safe", kinds=("move",), size=SMALL, pace_s=6)
    account = await run.run()
    print(account.table())
    assert account.wrong == {}
    assert account.faults["move"] >= 1
