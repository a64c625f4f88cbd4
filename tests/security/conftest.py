"""Fixtures of the security tests: the API on a store, and clients with keys of their own."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from api.app import create_app
from api.openapi import DocumentedApi
from tests.api.conftest import redis as redis
from tests.api.live import KEY
from tests.api.servers import PATIENT
from tests.builders import new_job
from tests.servers import Bench
from workron.models import Job, NewKey, Scope
from workron.settings import Settings
from workron.store import Store

JOB = {"command": "true", "queue": "b"}
ALL = ("read", "submit", "work")


@pytest.fixture
def store(bench: Bench) -> Store:
    """A store whose leases outlast a test."""
    return bench.store(PATIENT)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path)


@pytest.fixture
async def app(store: Store, settings: Settings) -> AsyncIterator[DocumentedApi]:
    app = create_app(store, settings, KEY)
    yield app
    await app.state.context.aclose()


class Clients:
    """Makes clients that know a key."""

    def __init__(self, app: DocumentedApi, store: Store, stack: AsyncExitStack) -> None:
        self._app = app
        self._store = store
        self._stack = stack
        self._made = 0

    async def key(self, *scopes: str, queues: tuple[str, ...] | None = None, ttl_ms: int | None = None) -> str:
        """Make a key and return it."""
        self._made += 1
        allowed = None if queues is None else frozenset(queues)
        new = NewKey(f"key-{self._made}", frozenset(map(Scope, scopes)), allowed, ttl_ms)
        return (await self._store.api_keys.create(new))[1]

    async def knowing(self, key: str | None) -> httpx2.AsyncClient:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        client = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(self._app), base_url="http://127.0.0.1", headers=headers
        )
        return await self._stack.enter_async_context(client)

    async def __call__(self, *scopes: str, queues: tuple[str, ...] | None = None) -> httpx2.AsyncClient:
        return await self.knowing(await self.key(*scopes, queues=queues))


@pytest.fixture
async def clients(app: DocumentedApi, store: Store) -> AsyncIterator[Clients]:
    async with AsyncExitStack() as stack:
        yield Clients(app, store, stack)


@pytest.fixture
async def master(clients: Clients) -> httpx2.AsyncClient:
    return await clients.knowing(KEY)


@pytest.fixture
async def limited(clients: Clients) -> httpx2.AsyncClient:
    return await clients(*ALL, queues=("a",))


async def foreign(store: Store, **fields: Any) -> Job:
    [job_id] = (await store.submit([new_job(queue="b", **fields)])).ids
    return await store.job(job_id)


def routes(document: dict[str, Any]) -> list[tuple[str, str]]:
    return [(path, method.upper()) for path, item in document["paths"].items() for method in item]
