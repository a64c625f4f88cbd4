"""Fixtures for the HTTP API: the application on a store, asked in process (`client`) or by real HTTP (`live`)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from pathlib import Path

import httpx2
import pytest

from api.app import create_app
from api.openapi import DocumentedApi
from api.server import bind, serve
from tests.api.live import AUTHORIZATION, KEY, Live
from workron.settings import Settings
from workron.signals import StopSignals
from workron.store import Store


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path, max_body=4 * 1024 * 1024)


@pytest.fixture
def app(store: Store, settings: Settings) -> DocumentedApi:
    return create_app(store, settings, KEY)


@pytest.fixture
async def client(app: DocumentedApi) -> AsyncIterator[httpx2.AsyncClient]:
    """A client with the key, inside this process: no server, no network."""
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=AUTHORIZATION) as client:
        yield client


@pytest.fixture
async def live(app: DocumentedApi) -> AsyncIterator[Live]:
    async with AsyncExitStack() as stack:
        listener = stack.enter_context(closing(bind("127.0.0.1", 0)))
        port = listener.getsockname()[1]
        signals = StopSignals()
        serving = asyncio.create_task(serve(app, app.state.context.stopping, listener, signals))
        client = httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=AUTHORIZATION, timeout=30)
        await stack.enter_async_context(client)
        yield Live(port, client, signals, serving)
        await client.aclose()
        signals.stop()
        await serving
