"""Fixtures for the HTTP API: the application on a store, asked in process (`client`) or by real HTTP (`live`)."""

import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from api.app import create_app
from api.openapi import DocumentedApi
from tests.api.live import AUTHORIZATION, KEY, Live, running
from tests.servers import start_server
from workron.local.valkey import server_binary
from workron.settings import Settings
from workron.store import Store


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path, max_body=4 * 1024 * 1024)


@pytest.fixture
async def app(store: Store, settings: Settings) -> AsyncIterator[DocumentedApi]:
    app = create_app(store, settings, KEY)
    yield app
    await app.state.context.aclose()


@pytest.fixture
async def client(app: DocumentedApi) -> AsyncIterator[httpx2.AsyncClient]:
    """A client with the key, inside this process: no server, no network."""
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=AUTHORIZATION) as client:
        yield client


@pytest.fixture
async def live(app: DocumentedApi) -> AsyncIterator[Live]:
    async with running(app) as live:
        yield live


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Any]:
    """A server of its own, that tests may kill, freeze and start again."""

    def start() -> None:
        one.process = start_server(server_binary(), tmp_path)

    one = SimpleNamespace(url=f"unix://{tmp_path / 'redis.sock'}", start=start)
    start()
    yield one
    one.process.send_signal(signal.SIGCONT)
    one.process.kill()
    one.process.wait(10)
