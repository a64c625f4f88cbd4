"""Processes that start before what they need: containers come up in any order."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.conftest import WaitUntil
from tests.e2e.conftest import Processes
from tests.ports import free_port
from tests.servers import start_server
from workron.local.valkey import server_binary

pytestmark = [pytest.mark.chaos]

KEY = "a-key-for-tests-only"


@pytest.fixture
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A server that is not there yet."""
    return f"unix://{tmp_path_factory.mktemp('redis') / 'redis.sock'}"


def said(folder: Path, word: str) -> list[int]:
    """How often each process has said it, in one line each."""
    files = sorted(folder.glob("*.log"))
    return [sum(word in json.loads(line)["event"] for line in file.read_text().splitlines()) for file in files]


async def test_a_process_that_was_there_before_redis_gave_up(
    processes: Processes, url: str, tmp_path: Path, wait_until: WaitUntil
) -> None:
    processes.set(WORKRON_API_KEY=KEY)
    port = free_port()
    processes.start("worker", "--api", f"http://127.0.0.1:{port}")
    processes.start("worker")
    processes.reaper()
    processes.start("api", "--port", str(port), "--data-dir", str(tmp_path))
    await wait_until(lambda: said(tmp_path, "unavailable") == [1] * 4)
    await asyncio.sleep(1)  # they try more than once, and say it once
    binary = server_binary()
    assert binary is not None
    server = start_server(binary, Path(url.removeprefix("unix://")).parent)
    try:
        await wait_until(lambda: said(tmp_path, " ready") == said(tmp_path, " available") == [1] * 4)
        assert said(tmp_path, "unavailable") == [1] * 4
    finally:
        server.kill()
        server.wait(10)


@pytest.mark.parametrize("process", ["api", "worker", "reaper"])
async def test_a_process_that_waits_for_redis_obeys_a_stop(
    processes: Processes, process: str, tmp_path: Path, wait_until: WaitUntil
) -> None:
    processes.set(WORKRON_API_KEY=KEY)
    options = ["--port", str(free_port()), "--data-dir", str(tmp_path)] if process == "api" else []
    waiting = processes.start(process, *options)
    await wait_until(lambda: said(tmp_path, "unavailable") == [1])
    waiting.terminate()
    assert await asyncio.to_thread(waiting.wait, 5) == 0
