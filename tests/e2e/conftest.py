"""Real worker and reaper processes on a real server, and their end."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.servers import Bench

LEASE_S = 1.5
"""Short enough for tests, long enough for a busy machine."""


class Processes:
    """Starts `workron worker` and `workron reaper` on one namespace."""

    def __init__(self, url: str, namespace: str, folder: Path) -> None:
        self._env = {
            **os.environ,
            "WORKRON_REDIS": url,
            "WORKRON_NAMESPACE": namespace,
            "WORKRON_LEASE": f"{LEASE_S}s",
            "WORKRON_REAP_EVERY": "0.2s",
            "WORKRON_RETRY_DELAY": "0.1s",
            "WORKRON_KILL_GRACE": "0.5s",
            "WORKRON_DRAIN_TIMEOUT": "1s",
            "WORKRON_LOG_FORMAT": "json",
        }
        self._folder = folder
        self.launcher: Sequence[str] = ()
        """What runs the processes that are started from now on."""
        self._started: list[subprocess.Popen[bytes]] = []

    def set(self, **variables: str) -> None:
        """Change settings of what is started from now on."""
        self._env.update(variables)

    def start(self, command: str, *options: str) -> subprocess.Popen[bytes]:
        return self.run(command, [*self.launcher, sys.executable, "-m", "workron", command, *options])

    def run(self, name: str, argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Start a process with the settings; it logs into a file of this name."""
        log = self._folder / f"{name}-{len(self._started)}.log"
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                argv, env=self._env, cwd=self._folder, stderr=stderr, start_new_session=True, **options
            )
        self._started.append(process)
        return process

    def worker(self, slots: int = 2) -> subprocess.Popen[bytes]:
        return self.start("worker", "--slots", str(slots))

    def reaper(self) -> subprocess.Popen[bytes]:
        return self.start("reaper")

    def logs(self) -> str:
        return "".join(path.read_text() for path in sorted(self._folder.glob("*.log")))

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait(10)


@pytest.fixture
def processes(url: str, namespace: str, tmp_path: Path) -> Iterator[Processes]:
    processes = Processes(url, namespace, tmp_path)
    yield processes
    processes.close()


@pytest.fixture
async def bench(url: str, namespace: str) -> AsyncIterator[Bench]:  # overrides the one for all kinds of servers
    bench = Bench("real", url, namespace)
    yield bench
    await bench.aclose()
