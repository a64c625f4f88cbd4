"""The process behind `workron worker`: a first stop signal drains it, a second one ends it now."""

import asyncio
import resource

from workers.executor import Executor
from workers.source import RedisSource
from workers.worker import Worker
from workron import collector, lifeline, logs
from workron.settings import Settings
from workron.signals import StopSignals
from workron.store import Store
from workron.tasks import end


def run(settings: Settings) -> int:
    """Work until a stop signal; returns the exit code."""
    lifeline.watch()
    allow_open_files()
    collector.relax()
    logs.configure(settings, process="worker")
    return asyncio.run(_run(settings))


def allow_open_files() -> None:
    """Raise the soft limit of open files to the hard one: every running command holds two."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _run(settings: Settings) -> int:
    async with Store.connect(settings) as store:
        await store.check(allow_eviction=settings.allow_eviction)
        source = RedisSource(store)
        async with Executor(kill_grace_s=settings.kill_grace) as executor:
            worker = Worker(settings, source, executor)
            with StopSignals() as signals:
                steering = asyncio.create_task(_steer(worker, signals))
                try:
                    await worker.run()
                finally:
                    await end([steering])
                    await source.aclose()
    return 0


async def _steer(worker: Worker, signals: StopSignals) -> None:
    await signals.stopping.wait()
    worker.stop()
    await signals.now.wait()
    worker.stop_now()
