"""Fixtures that every test may use: a store on each kind of server, and waiting for conditions."""

import asyncio
import gc
import itertools
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.consistency import Audit
from tests.patience import Patience
from tests.servers import KINDS, Bench, start_server
from workron.local.valkey import server_binary
from workron.settings import Settings
from workron.store import Store

pytest_plugins = ["tests.compiled", "tests.spread", "tests.budget", "tests.summary"]

_namespaces = itertools.count()

sys.modules.setdefault("sniffio", None)  # type: ignore[arg-type] # httpx2 looks for it in each request, in all folders

for _number, _usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:  # under nohup, or behind `&`: children would inherit it
        signal.signal(_number, _usual)

for _name in ("url", *Settings.model_fields):  # of the user's own Workron: what the tests start would inherit it
    os.environ.pop(f"WORKRON_{_name.upper()}", None)


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


def pytest_collection_finish() -> None:
    """Keep all that was collected out of further garbage collections: some 10% of what a test costs."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def namespace() -> str:
    """A namespace of its own for each test, so that tests share servers."""
    return f"test-{os.getpid()}-{next(_namespaces)}"


async def _problems(bench: Bench) -> list[str]:
    """Examine a namespace twice: by the doctor, and by an audit that shares nothing with it."""
    found = await Audit(bench.client, bench.keys).problems()
    report = await bench.store().doctor.examine()
    faults = [
        fault for fault in report.faults if fault.code != "quarantined"
    ]  # tests that damage keys leave a note of it
    return [
        *found,
        *(f"{fault.code} {fault.about}: {fault.detail}" for fault in faults),
        *filter(None, [report.uncounted]),
    ]


@pytest.fixture(params=KINDS)
async def bench(request: pytest.FixtureRequest, namespace: str) -> AsyncIterator[Bench]:
    kind = request.param
    url = None if kind == "fake" else request.getfixturevalue(f"{kind}_url")
    bench = Bench(kind, url, namespace)
    yield bench
    damaged = request.node.get_closest_marker("damaged") is not None
    problems = [] if damaged else await _problems(bench)
    await bench.aclose()
    assert problems == []


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
        """Return when the condition (a function or coroutine function) holds; fail when `Patience` is over."""
        patience = Patience(within_s)
        while True:
            result = condition()
            if asyncio.iscoroutine(result):
                result = await result
            if result:
                return
            assert not patience.is_over, f"not within {within_s:g} s: {condition}"
            await asyncio.sleep(0.02)

    return wait
