"""Servers to test on, and the bench that a test of the store works at."""

import socket
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import fakeredis
from redis.asyncio import Redis

from tests.patience import Patience
from tests.shared_lua import share_one_runtime
from workron.redis.connection import Connection, build_client
from workron.redis.keys import Keys
from workron.store import Store
from workron.store.policy import Policy

share_one_runtime()

KINDS: Final = ("fake", "valkey", "redis")
PATIENCE_S: Final = 20.0
"""What a call to Redis may take on a busy machine; tests of outages have shorter ones."""
USUAL: Final = Policy(lease_ms=30_000, pass_ms=100, retry_ms=20, retry_max_ms=1000, stop_ms=500)
"""Short waits, but leases that no busy machine outlives: see `lapse`."""
QUICK: Final = replace(USUAL, lease_ms=300)
"""For tests that wait until a lease is over."""


def start_server(binary: Path | str, folder: Path, *options: str) -> subprocess.Popen[bytes]:
    """Start a Redis or Valkey on `folder/redis.sock` alone, and wait until it listens."""
    path = folder / "redis.sock"
    process = subprocess.Popen(
        [str(binary), "--port", "0", "--unixsocket", str(path), "--save", "", "--dir", str(folder), *options],
        stdout=subprocess.DEVNULL,
    )
    patience = Patience(20)
    while not listens(path) and not patience.is_over:
        time.sleep(0.01)
    return process


def listens(path: Path) -> bool:
    """Whether one can connect to a unix socket: its file is there a moment before."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


_benches: Final[dict[Store, "Bench"]] = {}
"""Where a store is, as long as its bench is open."""


async def lapse(store: Store) -> None:
    """End all leases at this store's bench, as if each worker had been silent for as long as its lease."""
    bench = _benches[store]
    for job_id in await bench.client.zrange(bench.keys.leases, 0, -1):
        await bench.client.delete(bench.keys.heartbeat(job_id.decode()))
        await bench.client.zadd(bench.keys.leases, {job_id: 1}, xx=True)


class Bench:
    """One Redis and one namespace: makes stores on it, and shows its keys."""

    def __init__(self, kind: str, url: str | None, namespace: str) -> None:
        self.kind = kind
        self.url = url
        self.namespace = namespace
        self.keys = Keys(namespace)
        self._fake = fakeredis.FakeServer(version=(7, 0)) if url is None else None
        self.client = self._client()
        self._stores: list[Store] = []

    def _client(self) -> Redis:
        if self.url is None:
            return fakeredis.FakeAsyncRedis(server=self._fake, protocol=3)
        return build_client(self.url)

    def store(self, policy: Policy = USUAL) -> Store:
        """Return another store on the same data, as another process would have."""
        connection = Connection(self._client(), url=self.url, budget_s=PATIENCE_S)
        store = Store(connection, namespace=self.namespace, policy=policy, shebang=self.url is not None)
        self._stores.append(store)
        _benches[store] = self
        return store

    async def aclose(self) -> None:
        for store in self._stores:
            await store.aclose()
            del _benches[store]
        names = [name async for name in self.client.scan_iter(f"{self.keys.prefix}*", count=1000)]
        for start in range(0, len(names), 1000):
            await self.client.unlink(*names[start : start + 1000])
        await self.client.aclose()
