"""Cancels for workers that can only ask."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api.servers import Asked, Servers
from tests.conftest import WaitUntil
from tests.servers import Bench


@pytest.fixture
async def servers(valkey_url: str, namespace: str, tmp_path: Path) -> AsyncIterator[Servers]:
    bench = Bench("valkey", valkey_url, namespace)
    yield Servers(bench, tmp_path)
    await bench.aclose()


async def asked(server: Asked, worker: str = "w1", wait: float = 30) -> list[dict[str, object]]:
    response = await server.live.client.get(f"/cancels?worker_id={worker}&wait={wait}", timeout=70)
    data: list[dict[str, object]] = response.json()["data"]
    return data


async def test_a_cancel_reaches_the_worker_that_has_the_job_at_once(servers: Servers, wait_until: WaitUntil) -> None:
    await servers.submit(2)
    async with servers.server() as server:
        (mine,), (_,) = await server.claim("w1"), await server.claim("w2")
        asking = [asyncio.create_task(asked(server, worker, 5)) for worker in ("w1", "w2")]
        await wait_until(lambda: len(server.context.cancels._boxes) == 2)
        await asyncio.sleep(0.2)
        started = time.monotonic()
        await servers.store.cancel(mine["id"])
        assert await asking[0] == [{"id": mine["id"], "fence": mine["fence"]}]
        assert time.monotonic() - started < 1
        server.live.signals.stop()
        assert await asking[1] == []


async def test_a_cancel_between_two_questions_is_kept(servers: Servers, wait_until: WaitUntil) -> None:
    await servers.submit()
    async with servers.server() as server:
        (claim,) = await server.claim()
        assert await asked(server, wait=0.3) == []
        await servers.store.cancel(claim["id"])
        await wait_until(lambda: server.context.cancels._boxes["w1"].fences)
        assert await asked(server, wait=0) == [{"id": claim["id"], "fence": claim["fence"]}]
        assert await asked(server, wait=0) == []


async def test_a_worker_that_does_not_ask_again_is_forgotten(
    servers: Servers, wait_until: WaitUntil, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.worker_calls.cancels._KEPT_S", 0.1)
    async with servers.server() as server:
        await asyncio.gather(*(asked(server, wait=wait) for wait in (0, 0.2, 0.4)))
        await wait_until(lambda: not server.context.cancels._boxes)
