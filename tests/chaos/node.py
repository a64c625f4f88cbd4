"""One Redis server process whose data outlive it."""

import asyncio
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from ports import free_port
from redis.asyncio import Redis
from redis.exceptions import RedisError

READY_S = 20.0


class Node:
    """A server on a port of 127.0.0.1, and on a unix socket by which the tests are its administrator."""

    def __init__(self, folder: Path, *options: str, binary: str = "redis-server", tls: bool = False) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.port = free_port()
        port = ("--port", "0", "--tls-port", str(self.port)) if tls else ("--port", str(self.port))
        self._command = [
            *(binary, *port, "--bind", "127.0.0.1", "--unixsocket", str(folder / "redis.sock"), "--dir", str(folder)),
            *("--appendonly", "yes", "--appendfsync", "always", "--save", "", "--logfile", "redis.log", *options),
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self.admin = Redis(unix_socket_path=str(folder / "redis.sock"), protocol=3, socket_timeout=READY_S)

    async def start(self) -> None:
        """Start it, and wait until it has loaded its data."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, cwd=self.folder)  # noqa: ASYNC220
        await self.until(self._answers, "the server")

    async def _answers(self) -> bool:
        assert self._process
        assert self._process.poll() is None, (self.folder / "redis.log").read_text()[-2000:]
        return bool(await self.admin.ping())

    async def until(self, condition: Any, what: str, within_s: float = READY_S) -> None:
        """Wait until the coroutine function says yes; that the server does not answer is a no."""
        deadline = time.monotonic() + within_s
        while True:
            try:
                if await condition():
                    return
            except (RedisError, OSError):
                pass
            assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
            await asyncio.sleep(0.02)

    async def info(self, section: str) -> dict[str, Any]:
        found: dict[str, Any] = await self.admin.info(section)
        return found

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        if self.alive:
            assert self._process
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        if self._process is not None:
            self.signal(signal.SIGKILL)
            self._process.wait(10)

    async def aclose(self) -> None:
        self.kill()
        await self.admin.aclose()
