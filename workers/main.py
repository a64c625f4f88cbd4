"""The process behind `workron worker`: a first stop signal drains it, a second one stops it at once."""

import asyncio
import os
import resource
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from workers.executor import Executor
from workers.limits import Limits
from workers.parents import Parents
from workers.source import JobSource
from workers.worker import Worker
from workron.durations import to_seconds
from workron.runtime import gc_tuning, lifeline, logs
from workron.runtime.async_tools import end, unless
from workron.runtime.health import answering
from workron.runtime.outage import outlast
from workron.runtime.signals import StopSignals
from workron.settings import Settings


def run(settings: Settings, limits: Limits) -> int:
    """Work until a stop signal, a drain request, or a limit; return the exit code."""
    lifeline.watch()
    allow_open_files()
    gc_tuning.relax()
    logs.configure(settings, process="worker")
    return asyncio.run(_run(settings, limits))


def allow_open_files() -> None:
    """Raise the soft limit of open files to the hard one: every running command holds two."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _run(settings: Settings, limits: Limits) -> int:
    with StopSignals() as signals:
        async with answering("worker") as health, AsyncExitStack() as stack:
            connecting = partial(_from_api, settings, settings.api) if settings.api else partial(_from_redis, settings)
            patiently = outlast(signals.stopping, lambda: stack.enter_async_context(connecting()))
            connected = await unless(signals.stopping, patiently)
            if connected is None:
                return 0
            source, settings = connected
            parents = Parents(source).document
            executor = Executor(
                kill_grace_s=settings.kill_grace,
                halted=lambda: signals.told,
                parents=parents,
                environ=os.environb | ({b"WORKRON_URL": settings.api.encode()} if settings.api else {}),
            )
            worker = Worker(settings, source, await stack.enter_async_context(executor), limits)
            health.check = worker.problem
            await _work(worker, signals)
    return 0


async def _work(worker: Worker, signals: StopSignals) -> None:
    steering = asyncio.create_task(_steer(worker, signals))
    try:
        await worker.run()
    finally:
        await end([steering])


@asynccontextmanager
async def _from_redis(settings: Settings) -> AsyncIterator[tuple[JobSource, Settings]]:
    from workron.store import Store
    from workron.store.source import RedisSource  # a worker over HTTP needs no Redis client

    async with Store.connect(settings) as store:
        await store.check(allow_eviction=settings.allow_eviction)
        source = RedisSource(store)
        try:
            yield source, settings
        finally:
            await source.aclose()


@asynccontextmanager
async def _from_api(settings: Settings, url: str) -> AsyncIterator[tuple[JobSource, Settings]]:
    """The lease is the API's: the heartbeat keeps to it."""
    from workers.http_source import HttpSource

    key = settings.token.get_secret_value() if settings.token else None
    source = await HttpSource.connect(url, key)
    lease_s = to_seconds(source.lease_ms)
    times = {"lease": lease_s, "heartbeat": min(settings.heartbeat_s, lease_s / 3)}
    try:
        yield source, settings.model_copy(update=times)
    finally:
        await source.aclose()


async def _steer(worker: Worker, signals: StopSignals) -> None:
    await signals.stopping.wait()
    worker.stop()
    await signals.now.wait()
    worker.stop_now()
