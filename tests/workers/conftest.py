"""An executor, and an end for what commands leave behind on purpose."""

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.servers import Bench
from tests.workers.worker_sources import Place
from workers.executor import Executor


@pytest.fixture
async def executor() -> AsyncIterator[Executor]:
    async with Executor(kill_grace_s=0.3) as executor:
        yield executor


@pytest.fixture
def doomed() -> Iterator[list[int]]:
    """Processes to kill after the test: what a command left behind on purpose."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(params=["direct", "http"])
async def place(
    request: pytest.FixtureRequest, valkey_url: str, namespace: str, tmp_path: Path
) -> AsyncIterator[Place]:
    bench = Bench("valkey", valkey_url, namespace)
    yield Place(request.param, bench, tmp_path)
    await bench.aclose()
