"""An outage of Redis is two lines in the log of each process, however it begins and ends."""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import WaitUntil
from tests.e2e.conftest import Processes
from tests.ports import free_port
from tests.servers import start_server
from workron.local.valkey import server_binary
from workron.redis.connection import SOCKET_TIMEOUT_S

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(90)]

KEY = "a-key-for-tests-only"
AWAY_S = SOCKET_TIMEOUT_S + 2
"""Each process makes new calls meanwhile, and those that wait longest are still under way at the end."""


class Redis:
    """A server of its own that goes away, and comes back."""

    def __init__(self, folder: Path) -> None:
        self.url = f"unix://{folder / 'redis.sock'}"
        self._folder = folder
        self._start()

    def _start(self) -> None:
        binary = server_binary()
        assert binary is not None
        (self._folder / "redis.sock").unlink(missing_ok=True)
        self._process = start_server(binary, self._folder, "--appendonly", "yes")

    def freeze(self) -> Callable[[], None]:
        os.kill(self._process.pid, signal.SIGSTOP)
        return lambda: os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> Callable[[], None]:
        self.close()
        return self._start

    def close(self) -> None:
        self._process.kill()
        self._process.wait(10)


@pytest.fixture
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    redis = Redis(tmp_path_factory.mktemp("redis"))
    yield redis
    redis.close()


@pytest.fixture
def url(redis: Redis) -> str:  # overrides the one that the tests share
    return redis.url


def lines(folder: Path) -> dict[str, list[str]]:
    """What each process has logged of an outage: `unavailable`, `available`."""
    logged = {path.stem: map(json.loads, path.read_text().splitlines()) for path in sorted(folder.glob("*.log"))}
    return {
        process: [word for line in some for word in ("unavailable", "available") if f" {word}" in line["event"]]
        for process, some in logged.items()
    }


@pytest.mark.parametrize("how", ["freeze", "kill"])
async def test_an_outage_was_four_lines_of_the_reaper_and_went_on_for_calls_that_were_made_in_it(
    processes: Processes, redis: Redis, tmp_path: Path, wait_until: WaitUntil, how: str
) -> None:
    processes.set(WORKRON_API_KEY=KEY, WORKRON_LEASE="30s")
    port = free_port()
    processes.start("api", "--port", str(port), "--data-dir", str(tmp_path))
    await wait_until(lambda: '"api ready"' in processes.logs())
    processes.start("worker")
    processes.start("worker", "--api", f"http://127.0.0.1:{port}")
    processes.reaper()
    await wait_until(lambda: processes.logs().count(" ready") == 4)
    end_outage = redis.freeze() if how == "freeze" else redis.kill()
    await asyncio.sleep(AWAY_S)
    assert list(lines(tmp_path).values()) == [["unavailable"]] * 4
    end_outage()
    await wait_until(lambda: all("available" in of_one for of_one in lines(tmp_path).values()))
    await asyncio.sleep(SOCKET_TIMEOUT_S + 1)  # until the last call of that time has failed
    assert list(lines(tmp_path).values()) == [["unavailable", "available"]] * 4
