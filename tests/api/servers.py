"""API servers on one real Redis, each as another process would be, and what a worker asks of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from api.app import create_app
from api.context import Context
from tests.api.live import KEY, Live, running
from tests.builders import new_job
from tests.servers import Bench
from workron.models import Job, Status
from workron.settings import Settings
from workron.store import Store
from workron.store.policy import Policy

PATIENT = Policy(lease_ms=10_000, pass_ms=100, retry_ms=20)


class Servers:
    """Starts API servers; its own store looks at what they do."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.bench = bench
        self.store: Store = bench.store(PATIENT)
        self._folder = folder

    @asynccontextmanager
    async def server(self, policy: Policy = PATIENT, **settings: Any) -> AsyncIterator["Asked"]:
        async with AsyncExitStack() as stack:
            app = create_app(self.bench.store(policy), Settings(data_dir=self._folder, **settings), KEY)
            stack.push_async_callback(app.state.context.aclose)
            live = await stack.enter_async_context(running(app))
            yield Asked(live, app.state.context)

    async def submit(self, count: int = 1, **fields: Any) -> list[str]:
        return list((await self.store.submit([new_job(**fields) for _ in range(count)])).ids)

    async def job(self, job_id: str) -> Job:
        return await self.store.job(job_id)

    async def status(self, job_id: str) -> Status:
        return (await self.store.job(job_id)).status

    async def parked(self, queue: str = "default") -> list[str]:
        """Return the workers that are parked, whoever waited longest first."""
        names = [name.decode() for name in await self.bench.client.zrange(self.bench.keys.parked(queue), 0, -1)]
        claims = [f"{self.bench.keys.worker(name)}:claim" for name in names]
        flags = [await self.bench.client.hget(claim, "parked") for claim in claims]
        return [name for name, flag in zip(names, flags, strict=True) if flag]


class Asked:
    """One server, as workers ask it."""

    def __init__(self, live: Live, context: Context) -> None:
        self.live = live
        self.context = context

    async def claim(self, worker: str = "w1", **fields: Any) -> list[dict[str, Any]]:
        response = await self.live.client.post("/claims", json={"worker_id": worker, **fields}, timeout=70)
        assert response.status_code == 200, response.text
        data: list[dict[str, Any]] = response.json()["data"]
        return data

    async def next(self, worker: str = "w1", wait: float = 0) -> httpx2.Response:
        return await self.live.client.get(f"/jobs/next?worker_id={worker}&wait={wait}", timeout=70)

    async def post(self, path: str, json: Any = None) -> httpx2.Response:
        return await self.live.client.post(path, **({} if json is None else {"json": json}))

    def claiming(self, worker: str = "w1", **fields: Any) -> "asyncio.Task[list[dict[str, Any]]]":
        return asyncio.create_task(self.claim(worker, **fields))


async def hang_up(task: "asyncio.Task[Any]") -> None:
    """Close the connection of a request under way."""
    task.cancel()
    await asyncio.wait([task])
