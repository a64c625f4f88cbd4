"""Fixtures that every test may use: a store on each kind of server, and waiting for conditions."""

import asyncio
import itertools
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import fakeredis
import pytest
from redis.asyncio import Redis

from workron.connection import Connection, build_client
from workron.keys import Keys
from workron.policy import Policy
from workron.store import Store
from workron.valkey import server_binary

pytest_plugins = ["summary"]

_namespaces = itertools.count()
KINDS = ["fake", "valkey", "redis"]
QUICK = Policy(lease_ms=300, pass_ms=100, retry_ms=20, retry_max_ms=1000, stop_ms=500)


def start_server(binary: Path | str, folder: Path, *options: str) -> subprocess.Popen[bytes]:
    """Start a Redis or Valkey on `folder/redis.sock` alone, and wait until it listens."""
    socket = folder / "redis.sock"
    process = subprocess.Popen(
        [str(binary), "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(folder), *options],
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 20
    while not socket.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return process


def _server(kind: str, folder: Path) -> Iterator[str]:
    binary = server_binary() if kind == "valkey" else shutil.which("redis-server")
    if binary is None:
        pytest.skip("redis-server is not installed")
    process = start_server(binary, folder)
    yield f"unix://{folder / 'redis.sock'}"
    process.terminate()
    process.wait(10)


@pytest.fixture(scope="session")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from _server("valkey", tmp_path_factory.mktemp("valkey"))


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from _server("redis", tmp_path_factory.mktemp("redis"))


@pytest.fixture
def namespace() -> str:
    """A namespace of its own for each test, so that tests share servers."""
    return f"test-{os.getpid()}-{next(_namespaces)}"


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

    def store(self, policy: Policy = QUICK) -> Store:
        """Return another store on the same data, as another process would have."""
        connection = Connection(self._client(), url=self.url)
        store = Store(connection, namespace=self.namespace, policy=policy, shebang=self.url is not None)
        self._stores.append(store)
        return store

    async def aclose(self) -> None:
        for store in self._stores:
            await store.aclose()
        names = [name async for name in self.client.scan_iter(f"{self.keys.prefix}*", count=1000)]
        for start in range(0, len(names), 1000):
            await self.client.unlink(*names[start : start + 1000])
        await self.client.aclose()


@pytest.fixture(params=KINDS)
async def bench(request: pytest.FixtureRequest, namespace: str) -> AsyncIterator[Bench]:
    kind = request.param
    url = None if kind == "fake" else request.getfixturevalue(f"{kind}_url")
    bench = Bench(kind, url, namespace)
    yield bench
    await bench.aclose()


@pytest.fixture
def store(bench: Bench) -> Store:
    return bench.store()


@pytest.fixture(params=["valkey", "redis"])
def url(request: pytest.FixtureRequest) -> str:
    """The URL of a real server, for tests of processes."""
    return str(request.getfixturevalue(f"{request.param}_url"))


WaitUntil = Callable[..., Awaitable[None]]


@pytest.fixture
def wait_until() -> WaitUntil:
    async def wait(condition: Callable[[], object], *, within_s: float = 20.0) -> None:
        """Return when the condition (a function or coroutine function) holds; fail after the time."""
        deadline = time.monotonic() + within_s
        while True:
            result = condition()
            if asyncio.iscoroutine(result):
                result = await result
            if result:
                return
            assert time.monotonic() < deadline, f"not within {within_s:g} s: {condition}"
            await asyncio.sleep(0.02)

    return wait
