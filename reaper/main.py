"""The process behind `workron reaper`."""

import asyncio

from reaper.reaper import Reaper
from workron import lifeline, logs
from workron.outage import outlast
from workron.settings import Settings
from workron.signals import StopSignals
from workron.store import Store


def run(settings: Settings) -> int:
    """Make passes until a stop signal; returns the exit code."""
    lifeline.watch()
    logs.configure(settings, process="reaper")
    return asyncio.run(_run(settings))


async def _run(settings: Settings) -> int:
    async with Store.connect(settings) as store:
        with StopSignals() as signals:
            await outlast(signals.stopping, lambda: store.check(allow_eviction=settings.allow_eviction))
            await Reaper(store, every_s=settings.reap_every).run(signals.stopping)
    return 0
