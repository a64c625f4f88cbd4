"""Our worker without commands in the same process as a client: for counts that do not depend on the machine."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bench.peers import OURS
from bench.plan import Plan
from bench.server import Server, Usage
from bench.settings import settings_for
from bench.systems.noop import NoopExecutor
from workers.executor import Executor
from workers.worker import Worker
from workron import ids
from workron.models import Claim, NewJob, Status
from workron.settings import Settings
from workron.store import Store
from workron.store.source import RedisSource

ONE_BY_ONE = 100
CHUNK = 400


@dataclass
class Bench:
    """A store, and a worker in the same process whose jobs do nothing."""

    store: Store
    ran: int = 0
    enough: int = 0

    def __post_init__(self) -> None:
        self.changed = asyncio.Event()

    def body(self, _claim: Claim) -> None:
        self.ran += 1
        if self.ran == self.enough:
            self.changed.set()

    async def wait(self, count: int) -> None:
        """Wait until so many jobs have run."""
        self.enough = count
        if self.ran < count:
            self.changed.clear()
            async with asyncio.timeout(60):
                await self.changed.wait()

    async def submit(self, count: int) -> None:
        for start in range(0, count, CHUNK):
            names = ids.new_ids(min(CHUNK, count - start))
            await self.store.submit([NewJob(name, command="true") for name in names])

    async def until_done(self, count: int) -> None:
        """Wait until the store says that so many jobs are done."""
        async with asyncio.timeout(60):
            while sum(queue.counts[Status.DONE] for queue in await self.store.queues()) < count:  # noqa: ASYNC110 - another process's work
                await asyncio.sleep(0.01)

    @asynccontextmanager
    async def working(self, settings: Settings, *, commands: bool = False) -> AsyncIterator[None]:
        """Have a worker work, with `commands` the whole one."""
        source = RedisSource(self.store)
        made = Executor(kill_grace_s=settings.kill_grace) if commands else NoopExecutor(self.body)
        async with made as executor:
            worker = Worker(settings, source, executor)
            running = asyncio.create_task(worker.run())
            try:
                yield
            finally:
                worker.stop()
                await running
                await source.aclose()


async def one_by_one(server: Server, jobs: int = ONE_BY_ONE) -> Usage:
    """Submit a job, wait until it is done, submit the next; return what that took of the server.

    What the worker asks of it anyway in that time (heartbeats, repeated waits) is subtracted.
    """
    settings = settings_for(server.url)
    async with Store.connect(settings) as store:
        bench = Bench(store)
        async with bench.working(settings):
            await bench.submit(1)
            await bench.wait(1)
            await bench.until_done(1)
            before, started = server.usage(), time.monotonic()
            for number in range(jobs):
                await bench.submit(1)
                await bench.wait(number + 2)
                await asyncio.sleep(0.005)  # the result arrives, the worker waits again
            busy, took_s = server.usage(), time.monotonic() - started
            await asyncio.sleep(took_s)  # as long again without a job
            return busy.since(before).since(server.usage().since(busy))


def measure(plan: Plan, _turn: int) -> None:
    jobs = plan.scaled(ONE_BY_ONE)
    plan.server.clear()
    usage = asyncio.run(one_by_one(plan.server, jobs))
    # A heartbeat more or less in a hundred jobs is not theirs.
    plan.results.add("round trips idle", OURS.name, round(usage.reads / jobs, 1))
