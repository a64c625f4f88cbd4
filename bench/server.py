"""The Redis server that everything is measured on: one process, one configuration, for all systems."""

import shutil
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import redis

from workron.local.valkey import server_binary


class ServerMissingError(Exception):
    """The server that was asked for is not installed."""


def find_server(kind: str) -> Path:
    """Return the program of `redis` (Debian's, or another on PATH) or `valkey` (the one that Workron embeds)."""
    if kind == "valkey":
        return server_binary()
    found = shutil.which("redis-server")
    if found is None:
        raise ServerMissingError("redis-server is not installed; try --server valkey")
    return Path(found)


@dataclass(frozen=True, slots=True)
class Usage:
    """What the server has done since its start."""

    cpu_s: float
    commands: int
    """Also those that scripts call."""
    reads: int
    """Reads from clients that brought something: a pipeline is one, so these are round trips."""
    memory: int
    """Without the buffers of clients and of the append-only file."""
    calls: dict[str, int]

    def since(self, before: "Usage") -> "Usage":
        calls = {name: count - before.calls.get(name, 0) for name, count in self.calls.items()}
        return Usage(
            self.cpu_s - before.cpu_s,
            self.commands - before.commands,
            self.reads - before.reads,
            self.memory - before.memory,
            {name: count for name, count in calls.items() if count},
        )


class Server:
    """A server on 127.0.0.1 with an append-only file; a context that ends it."""

    def __init__(self, kind: str = "redis", *, fsync: str = "everysec") -> None:
        self.kind = kind
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = tempfile.TemporaryDirectory(prefix="workron-bench-")
        self.options = {"appendonly": "yes", "appendfsync": fsync, "save": "", "auto-aof-rewrite-percentage": "0"}
        place = {"port": str(self.port), "bind": "127.0.0.1", "dir": self._folder.name}
        arguments = [part for name, value in (self.options | place).items() for part in (f"--{name}", value)]
        self._process = subprocess.Popen(  # noqa: S603 - our own server
            [str(find_server(kind)), *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.client = redis.Redis(port=self.port)
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + 20
        while True:
            try:
                self.client.ping()
            except redis.ConnectionError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise
                time.sleep(0.02)  # a server that starts cannot be waited for otherwise; at most 20 s
            else:
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self._process.terminate()
        self._process.wait(30)
        self._folder.cleanup()

    @property
    def pid(self) -> int:
        return self._process.pid

    def info(self) -> dict[str, Any]:
        found: dict[str, Any] = self.client.info("everything")
        return found

    @property
    def version(self) -> str:
        info = self.info()
        return f"{info.get('server_name', 'redis')} {info.get('valkey_version') or info['redis_version']}"

    def flush(self) -> None:
        """Forget all data now: Valkey would do it in the background and count the memory later."""
        self.client.execute_command("FLUSHALL", "SYNC")  # type: ignore[no-untyped-call] # redis-py

    def clear(self) -> None:
        """Forget all data and statistics."""
        self.flush()
        self.client.config_resetstat()
        self.client.slowlog_reset()

    def usage(self) -> Usage:
        info = self.info()
        return Usage(
            info["used_cpu_user"] + info["used_cpu_sys"],
            info["total_commands_processed"],
            info["total_reads_processed"],
            info["used_memory"] - info["mem_clients_normal"] - info["mem_aof_buffer"],
            {name.removeprefix("cmdstat_"): row["calls"] for name, row in info.items() if name.startswith("cmdstat_")},
        )

    def settle(self, *, within_s: float = 2, quiet: int = 2) -> None:
        """Wait until at most `quiet` commands come in 50 ms, for `within_s` at most."""
        deadline = time.monotonic() + within_s
        before = -1
        while time.monotonic() < deadline:
            now = self.client.info("stats")["total_commands_processed"]
            if now - before <= quiet:
                return
            before = now
            time.sleep(0.05)  # the window that is measured


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
