"""All processes of a whole Workron, each started again when it dies, as a service manager does it."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.commands import guardian_of
from tests.local_stack import ROOT, environment
from tests.ports import free_port
from workron.local.addresses import http_ok

API_KEY: Final = "the-key-of-the-chaos-harness"
PACKAGES: Final = ("api", "lua", "reaper", "workers", "workron")
QUICK: Final = {
    "WORKRON_LEASE": "3s",
    "WORKRON_REAP_EVERY": "0.3s",
    "WORKRON_RETRY_DELAY": "0.1s",
    "WORKRON_RETRY_MAX_DELAY": "1s",
    "WORKRON_KILL_GRACE": "0.5s",
    "WORKRON_DRAIN_TIMEOUT": "1s",
    "WORKRON_RETENTION_DONE": "5m",
    "WORKRON_RETENTION_FAILED": "5m",
    "WORKRON_LOG_FORMAT": "json",
}
_DRAINED_S: Final = 30.0
_REPLACED_S: Final = 5.0


@dataclass(frozen=True)
class Size:
    """How many processes of each kind."""

    apis: int = 3
    workers: int = 4
    http_workers: int = 2
    reapers: int = 2


class Process:
    """One `workron …`, in a session of its own."""

    def __init__(self, name: str, folder: Path, command: Sequence[str], env: Mapping[str, str]) -> None:
        self.name = name
        self.folder = folder
        self.command = command
        self.env = dict(env)
        self.expected_to_die = False
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.expected_to_die = False
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "workron", *self.command],
                env=self.env,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def exit_code(self) -> int | None:
        return self._process.poll() if self._process else None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        if self.alive:
            assert self._process
            self.expected_to_die |= number in (signal.SIGKILL, signal.SIGTERM)
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        """Kill it, and return when it is gone."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(10)

    def kill_guardian(self) -> None:
        """Kill the process that watches over a worker's commands."""
        if self.alive:
            assert self._process
            with suppress(OSError):
                if guardian := guardian_of(self._process.pid):
                    os.kill(guardian, signal.SIGKILL)

    async def ended(self, within_s: float) -> bool:
        for _ in range(int(within_s / 0.05)):
            if not self.alive:
                return True
            await asyncio.sleep(0.05)
        return not self.alive


class Deployment:
    """API servers, workers (to Redis, and over HTTP) and reapers on one Redis."""

    def __init__(self, folder: Path, redis_url: str, http_port: int, api_ports: Sequence[int], size: Size) -> None:
        self.folder = folder
        self.died_by_themselves: Counter[str] = Counter()
        """Processes that ended without having been killed or told to, by name and exit code."""
        home = environment(folder) | QUICK | {"WORKRON_API_KEY": API_KEY}
        home.pop("WORKRON_PORT")
        near = home | {"WORKRON_REDIS": redis_url}
        self.apis = [self._one(f"api-{n}", near, "api", "--port", str(port)) for n, port in enumerate(api_ports)]
        self.workers = [self._one(f"worker-{n}", near, "worker", "--slots", "4") for n in range(size.workers)]
        over_http = ("worker", "--slots", "4", "--api", f"http://127.0.0.1:{http_port}")
        self.workers += [self._one(f"http-worker-{n}", home, *over_http) for n in range(size.http_workers)]
        self.reapers = [self._one(f"reaper-{n}", near, "reaper") for n in range(size.reapers)]
        self.processes = [*self.apis, *self.workers, *self.reapers]
        self._other_version: Path | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._rolling = asyncio.Lock()

    def _one(self, name: str, env: Mapping[str, str], *command: str) -> Process:
        return Process(name, self.folder, command, env)

    def start(self) -> None:
        for process in self.processes:
            process.start()
        self._keeping = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        while True:
            for process in self.processes:
                if process.alive:
                    continue
                if not process.expected_to_die:
                    self.died_by_themselves[f"{process.name} {process.exit_code}"] += 1
                process.start()
            await asyncio.sleep(0.1)

    async def roll(self) -> None:
        """Stop each process in turn and start it in another version: with another script under each name."""
        async with self._rolling:
            if self._other_version is None:
                self._other_version = another_version(self.folder / "other-version")
            old = "PYTHONPATH" not in self.processes[0].env
            for process in self.processes:
                if old:
                    process.env["PYTHONPATH"] = str(self._other_version)
                else:
                    process.env.pop("PYTHONPATH", None)
                process.signal(signal.SIGTERM)
                await self._replaced(process)

    async def _replaced(self, process: Process) -> None:
        """Wait until another one is there, and an API ready; not for long: it may be frozen, or Redis away."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_REPLACED_S):
                await asyncio.sleep(0.5)
                while not await self._is_ready(process):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)

    async def _is_ready(self, process: Process) -> bool:
        if process.expected_to_die:  # the old one
            return False
        return process not in self.apis or await http_ok("127.0.0.1", int(process.command[-1]), "/readyz")

    async def stop(self) -> None:
        """Ask all to end, workers first; kills what does not."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        for process in self.processes:
            process.signal(signal.SIGCONT)
        for group in (self.workers, self.reapers, self.apis):
            for process in group:
                process.signal(signal.SIGTERM)
            for process in group:
                if not await process.ended(_DRAINED_S):
                    self.died_by_themselves[f"{process.name} did not stop"] += 1
        self.kill()

    def kill(self) -> None:
        """End all at once, whatever state they are in."""
        if self._keeping is not None:
            self._keeping.cancel()
        for process in self.processes:
            process.kill()


def another_version(folder: Path) -> Path:
    """Copy the product, with one comment more in all of its scripts, so that each has another SHA."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    core = folder / "lua" / "lib" / "core.lua"
    core.write_text(f"-- another version\n{core.read_text()}")
    return folder


def api_ports(size: Size) -> list[int]:
    return [free_port() for _ in range(size.apis)]
