"""One Redis server process whose data outlive it."""

import asyncio
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from tests.patience import Patience
from tests.ports import free_port

READY_S = 60.0
OPTIONS = (
    "bind 127.0.0.1",
    "appendonly yes",
    "appendfsync always",
    "auto-aof-rewrite-min-size 8mb",
    'save ""',
    "logfile redis.log",
)


class Node:
    """A server on a port of 127.0.0.1, and on a unix socket by which the tests are its administrator."""

    def __init__(self, folder: Path, *directives: str, binary: str = "redis-server", tls: bool = False) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.port = free_port()
        self._binary = binary
        lines = (f"port {0 if tls else self.port}", *([f"tls-port {self.port}"] if tls else []), *OPTIONS, *directives)
        (folder / "redis.conf").write_text("\n".join((f"dir {folder}", f"unixsocket {folder}/redis.sock", *lines, "")))
        self._process: subprocess.Popen[bytes] | None = None
        self.admin = Redis(unix_socket_path=str(folder / "redis.sock"), protocol=3, socket_timeout=READY_S)

    async def start(self) -> None:
        """Start it, and wait until it has loaded its data."""
        self._process = self._run()
        await self.until(self._answers, "the server")

    def _run(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen([self._binary, "redis.conf"], stdout=subprocess.DEVNULL, cwd=self.folder)

    async def _answers(self) -> bool:
        assert self._process
        assert self._process.poll() is None, (self.folder / "redis.log").read_text()[-2000:]
        return bool(await self.admin.ping())

    async def until(self, condition: Any, what: str, within_s: float = READY_S) -> None:
        """Wait until the coroutine function says yes; that the server does not answer is a no."""
        patience = Patience(within_s)
        while True:
            try:
                if await condition():
                    return
            except (RedisError, OSError):
                pass
            assert not patience.is_over, f"not within {within_s:g} s: {what}"
            await asyncio.sleep(0.02)

    async def info(self, section: str) -> dict[str, Any]:
        found: dict[str, Any] = await self.admin.info(section)
        return found

    async def ask(self, *words: str | int) -> Any:
        """Send a command as the administrator."""
        return await self.admin.execute_command(*words)

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
