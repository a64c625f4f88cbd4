"""Schedules while reapers and the server itself are killed all the time: each occurrence is started once."""

import asyncio
import random
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from redis.exceptions import RedisError

from tests.e2e.conftest import Processes
from tests.patience import Patience
from tests.schedules import definition, make_due, workflow
from tests.servers import Bench, start_server
from workron.local.valkey import server_binary
from workron.redis.keys import Keys
from workron.schedules.models import RunOutcome

pytestmark = pytest.mark.chaos

SINGLES = 20
LARGE = 700
ROUNDS = 6
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


class Server:
    """A server of this test's own, that keeps what it has answered."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.start()

    def start(self) -> None:
        binary = server_binary()
        assert binary is not None
        self.process = start_server(binary, self.folder, *DURABLE)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.kill()


async def fired(bench: Bench, names: list[str]) -> int:
    pipe = bench.client.pipeline()
    for name in names:
        pipe.hget(bench.keys.schedule(name), RunOutcome.FIRED)
    return sum(int(count or 0) for count in await pipe.execute())


async def until_loaded(bench: Bench) -> None:
    await bench.client.connection_pool.disconnect()
    while True:
        with suppress(RedisError):
            if await bench.client.ping():
                return
        await asyncio.sleep(0.02)


async def until_all_fired(bench: Bench, names: list[str], count: int) -> None:
    patience = Patience(30)
    while await fired(bench, names) < count:
        assert not patience.is_over, f"{await fired(bench, names)} of {count} have fired"
        await asyncio.sleep(0.05)


async def test_each_occurrence_is_started_once_whatever_is_killed(
    server: Server, namespace: str, tmp_path: Path
) -> None:
    url = f"unix://{tmp_path / 'redis.sock'}"
    bench = Bench("valkey", url, namespace)
    processes = Processes(url, namespace, tmp_path)
    store = bench.store()
    names = [f"s{n}" for n in range(SINGLES)]
    for name in names:
        await store.schedules.put(name, definition())
    await store.schedules.put("large", workflow(LARGE))
    names.append("large")
    reapers = [processes.reaper() for _ in range(3)]
    try:
        for turn in range(1, ROUNDS + 1):
            for name in names:
                await make_due(bench, name=name)
            await asyncio.sleep(random.uniform(0.0, 0.15))  # noqa: S311 - when to kill, not a secret
            victim = reapers.pop(0)
            victim.send_signal(signal.SIGKILL)
            if turn % 3 == 0:
                server.kill()
                server.start()
                await until_loaded(bench)
            reapers.append(processes.reaper())
            await until_all_fired(bench, names, turn * len(names))
        for _ in range(100):
            if await bench.client.zcard(Keys(namespace).batches) == 0:
                break
            await store.maintenance.tidy()
        assert await fired(bench, names) == ROUNDS * len(names)
        assert await bench.client.zcard(bench.keys.jobs) == ROUNDS * (SINGLES + LARGE)
    finally:
        processes.close()
        await bench.aclose()
