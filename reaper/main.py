"""The process behind `workron reaper`."""

import asyncio

from reaper.reaper import Reaper
from workron.runtime import lifeline, logs
from workron.runtime.health import answering
from workron.runtime.outage import outlast
from workron.runtime.signals import StopSignals
from workron.settings import Settings
from workron.store import Store


def run(settings: Settings) -> int:
    """Run passes until a stop signal; return the exit code."""
    lifeline.watch()
    logs.configure(settings, process="reaper")
    return asyncio.run(_run(settings))


async def _run(settings: Settings) -> int:
    async with answering("reaper") as health, Store.connect(settings) as store:
        with StopSignals() as signals:
            await outlast(signals.stopping, lambda: store.check(allow_eviction=settings.allow_eviction))
            reaper = Reaper(store, every_s=settings.reap_every)
            health.check = reaper.problem
            await reaper.run(signals.stopping)
    return 0
