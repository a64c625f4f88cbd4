"""The key that the tests of the API use, the API on a real socket, and what it logs of outages."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from api.openapi import DocumentedApi
from api.server import bind, serve
from tests.plain_http import NO_AUTHORITIES
from tests.ports import free_port
from workron.runtime.signals import StopSignals

KEY = "a-key-for-tests-only"
AUTHORIZATION = {"authorization": f"Bearer {KEY}"}
START = "import sys; from api.server import run; from workron.cli.config import load; sys.exit(run(load({})))"
"""What `python -c` runs as an API process."""


def environment(redis: str, namespace: str, folder: Path) -> tuple[int, dict[str, str]]:
    """Return a free port, and the environment of an API process that listens there."""
    port = free_port()
    return port, os.environ | {
        "WORKRON_REDIS": redis,
        "WORKRON_NAMESPACE": namespace,
        "WORKRON_PORT": str(port),
        "WORKRON_API_KEY": KEY,
        "WORKRON_DATA_DIR": str(folder),
        "WORKRON_LOG_FORMAT": "json",
    }


def outage_lines(logs: list[Any]) -> list[str]:
    return [line["event"] for line in logs if line["event"].startswith("redis")]


@dataclass
class Live:
    """A running server; `signals.stop()` is what a first SIGTERM does."""

    port: int
    client: httpx2.AsyncClient
    signals: StopSignals
    serving: "asyncio.Task[None]"


@asynccontextmanager
async def running(app: DocumentedApi) -> AsyncIterator[Live]:
    """Serve the application on a free port, and stop it at the end."""
    with closing(bind("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        signals = StopSignals()
        serving = asyncio.create_task(serve(app, app.state.context.stopping, listener, signals))
        url = f"http://127.0.0.1:{port}"
        async with httpx2.AsyncClient(base_url=url, headers=AUTHORIZATION, timeout=30, verify=NO_AUTHORITIES) as client:
            yield Live(port, client, signals, serving)
        signals.stop()
        await serving
