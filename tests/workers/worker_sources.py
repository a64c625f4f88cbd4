"""Workers on a store that get their jobs straight from Redis, or over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from api.app import create_app
from tests.api.live import KEY, running
from tests.servers import Bench
from workers.executor import Executor
from workers.http_source import HttpSource
from workers.limits import NO_LIMITS, Limits
from workers.parents import Parents
from workers.source import JobSource
from workers.worker import Worker
from workron.models import Status
from workron.settings import Settings
from workron.store import Store
from workron.store.policy import Policy
from workron.store.source import RedisSource

PATIENT = Policy(lease_ms=10_000, pass_ms=100, retry_ms=20)
HASTY = Policy(lease_ms=1_200, pass_ms=100)


class Place:
    """A store, and workers on it that get their jobs by one of the ways."""

    def __init__(self, how: str, bench: Bench, folder: Path, **api: Any) -> None:
        self.how = how
        self._api = api
        self.bench = bench
        self._folder = folder
        self.store: Store

    @asynccontextmanager
    async def worker(
        self, policy: Policy = PATIENT, limits: Limits = NO_LIMITS, **settings: Any
    ) -> AsyncIterator[Worker]:
        self.store = self.bench.store(policy)
        async with AsyncExitStack() as stack:
            source = await self.source(policy, stack)
            executor = await stack.enter_async_context(Executor(kill_grace_s=0.3, parents=Parents(source).document))
            lease_s = policy.lease_ms / 1000
            defaults = {"slots": 2, "lease": lease_s, "heartbeat": lease_s / 4, "drain_timeout": 0.5}
            worker = Worker(Settings(**{**defaults, **settings}), source, executor, limits)
            task = asyncio.create_task(worker.run())
            yield worker
            worker.stop_now()
            await asyncio.wait_for(task, 20)
            await source.aclose()

    async def is_parked(self) -> bool:
        """Whether a worker waits for jobs of the queue `default`."""
        return bool(await self.bench.client.exists(self.bench.keys.parked("default")))

    async def source(self, policy: Policy, stack: AsyncExitStack) -> JobSource:
        if self.how == "direct":
            return RedisSource(self.bench.store(policy))
        app = create_app(self.bench.store(policy), Settings(data_dir=self._folder, **self._api), KEY)
        stack.push_async_callback(app.state.context.aclose)
        live = await stack.enter_async_context(running(app))
        return await HttpSource.connect(f"http://127.0.0.1:{live.port}", KEY)

    async def status(self, job_id: str) -> Status:
        return (await self.store.job(job_id)).status

    def is_(self, job_id: str, status: Status) -> Callable[[], Awaitable[bool]]:
        async def check() -> bool:
            return await self.status(job_id) is status

        return check
