"""A primary, its replicas and three sentinels: calls find the primary, before a failover and after it."""

import asyncio
import signal
from pathlib import Path

import pytest

from tests.builders import claim, finish, new_job, submit
from tests.chaos.data_servers import KEYS, Ground
from tests.chaos.deployment import Size
from tests.chaos.harness import Run
from tests.chaos.node import Node
from tests.chaos.topologies import Failover, SafeFailover
from tests.conftest import WaitUntil
from tests.topologies.conftest import Placed
from workron.errors import StoreUnavailable
from workron.models import Status
from workron.redis.connection import Connection

pytestmark = [pytest.mark.chaos]
SMALL = Size(apis=2, workers=2, http_workers=1, reapers=1)
failover = pytest.mark.parametrize("placed", [Failover], indirect=True)
safe_failover = pytest.mark.parametrize("placed", [SafeFailover], indirect=True)


@failover
async def test_after_the_death_of_the_primary_calls_go_to_its_successor(placed: Placed, wait_until: WaitUntil) -> None:
    store = placed.store()
    first = placed.ground.primary
    (job_id,) = await submit(store, new_job())
    heard: list[str] = []
    listening = asyncio.create_task(listen(placed.connection(), heard))
    async with placed.connection().own() as own:
        waiting = asyncio.create_task(wait_in_line(own))
        await wait_until(lambda: publish(first, heard))
        first.kill()
        second = await another_than(placed, first)
        (got,) = await claim(store)
        await finish(store, got)
        assert (await store.job(job_id)).status is Status.DONE
        heard.clear()
        await wait_until(lambda: publish(second, heard))
        await second.ask("RPUSH", f"{KEYS.prefix}line", "news")
        assert (await asyncio.wait_for(waiting, 20))[1] == b"news"
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


@failover
async def test_a_primary_that_stood_still_and_does_not_know_of_the_next_one_is_left_by_all(
    placed: Placed, wait_until: WaitUntil
) -> None:
    """It would accept jobs, and find none of those that the new one has, for some 10 s."""
    connections = [placed.connection() for _ in range(3)]
    await asyncio.gather(*(connection.call("PING") for connection in connections))
    old = placed.ground.primary
    old.signal(signal.SIGSTOP)
    new = await another_than(placed, old)
    old.signal(signal.SIGCONT)
    await new.ask("SET", f"{KEYS.prefix}mark", "here")

    async def have_left() -> bool:
        return all([await connection.call("GET", f"{KEYS.prefix}mark") for connection in connections])

    await wait_until(have_left)
    assert (await old.ask("ROLE"))[0] == b"master"
    for connection in connections:
        await connection.aclose()


@pytest.mark.parametrize("placed", [Ground], indirect=True)
async def test_a_call_that_waited_on_a_server_that_became_a_replica_was_taken_for_broken(
    placed: Placed, wait_until: WaitUntil
) -> None:
    async def waits() -> bool:
        return bool((await placed.ground.primary.info("clients"))["blocked_clients"])

    async with placed.connection().own() as own:
        waiting = asyncio.create_task(own.call("BLPOP", f"{KEYS.prefix}line", 4, repeat=False))
        await wait_until(waits)
        await placed.ground.primary.ask("REPLICAOF", "127.0.0.1", 1)
        with pytest.raises(StoreUnavailable) as raised:
            await waiting
        assert type(raised.value) is StoreUnavailable


async def listen(connection: Connection, heard: list[str]) -> None:
    while True:
        try:
            async for message in connection.messages(f"{KEYS.prefix}channel"):
                heard.append(message)
        except StoreUnavailable:
            await asyncio.sleep(0.1)


async def publish(node: Node, heard: list[str]) -> bool:
    await node.ask("PUBLISH", f"{KEYS.prefix}channel", "hello")
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
    await cut_off_replicas(placed)
    lost = await submit(store, *(new_job() for _ in range(10)))
    passes = [(await store.maintenance.reap()).undone for _ in range(3)]
    await fail_over(placed)
    found = [job and job.id for job in await store.jobs([kept, *lost])]
    assert found == [kept] + [None] * 10
    assert (passes, (await store.maintenance.reap()).undone) == ([0, 0, 0], 3)
    assert (await store.health()).rollbacks == 1
    report = await store.doctor.examine()
    assert (report.rollbacks, report.rolled_back, report.faults) == (1, "passes 3 0", ())


@safe_failover
async def test_a_primary_without_replicas_refuses_jobs_if_configured_and_loses_none(placed: Placed) -> None:
    store, impatient = placed.store(), placed.store(budget_s=1.5)
    (kept,) = await submit(store, new_job())
    await all_have(placed, kept)
    await cut_off_replicas(placed)
    with pytest.raises(StoreUnavailable, match="NOREPLICAS"):
        await submit(impatient, new_job())
    await fail_over(placed)
    assert (await store.job(kept)).status is Status.PENDING
    assert len(await submit(store, new_job())) == 1


async def all_have(placed: Placed, job_id: str) -> None:
    for node in placed.ground.nodes:

        async def has() -> bool:
            return bool(await node.ask("EXISTS", KEYS.job(job_id)))  # noqa: B023 - it is over before the next one

        await node.until(has, "the job on the replica")


def replicas(placed: Placed) -> list[Node]:
    return [node for node in placed.ground.nodes if node is not placed.ground.primary]


async def cut_off_replicas(placed: Placed) -> None:
    """Let the replicas be refused by their primary, which goes on."""
    for node in replicas(placed):
        await node.ask("CONFIG", "SET", "masteruser", "nobody", "masterauth", "unknown")
    await placed.ground.primary.ask("CLIENT", "KILL", "TYPE", "replica")


async def fail_over(placed: Placed) -> None:
    """Kill the primary, of which the replicas may hear again when it is back."""
    dead = placed.ground.primary
    dead.kill()
    for node in replicas(placed):
        await node.ask("CONFIG", "SET", "masteruser", "", "masterauth", "")
    await another_than(placed, dead)


async def another_than(placed: Placed, node: Node) -> Node:
    """Return the server that the sentinels make the primary in place of this one."""
    assert isinstance(placed.ground, Failover)
    await placed.ground.another_than(node)
    port = await placed.ground.sentinels[0].primary()
    return next(node for node in placed.ground.nodes if node.port == port)


async def test_failovers_under_load_lose_nothing_but_what_no_replica_had_heard_of(tmp_path: Path) -> None:
    run = Run(tmp_path, seed=6, seconds=6, topology="sentinel-safe", kinds=("move",), size=SMALL, pace_s=3)
    account = await run.run()
    print(account.table())
    assert account.wrong == {}
    assert account.faults["move"] >= 1
