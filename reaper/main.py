"""The process behind `workron reaper`."""

import asyncio

from reaper.reaper import Reaper
from workron.runtime import lifeline, logs
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
    async with Store.connect(settings) as store:
        with StopSignals() as signals:
            await outlast(signals.stopping, lambda: store.check(allow_eviction=settings.allow_eviction))
            await Reaper(store, every_s=settings.reap_every).run(signals.stopping)
    return 0
