"""The reaper: repeats the passes that keep the system in order. Any number of them may run; nobody is leader."""

import asyncio
import random
import time
from dataclasses import dataclass
from typing import Final

import structlog

from workron.errors import StoreUnavailable
from workron.outage import Outage
from workron.store import Store
from workron.upkeep import Reaped, Swept, Upkeep

SWEEP_EVERY_S: Final = 10.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass did."""

    reaped: Reaped
    tidied: int
    swept: Swept | None


class Reaper:
    """`tick` does one pass, `run` repeats it."""

    def __init__(self, store: Store, *, every_s: float) -> None:
        self._upkeep: Upkeep = store.upkeep
        self._every_s = every_s
        self._swept_at = time.monotonic()
        self._outage = Outage()

    async def run(self, stopping: asyncio.Event) -> None:
        """Make passes until told to stop. Passes of several reapers drift apart by jitter."""
        log.info("reaper ready", every_s=self._every_s)
        while not stopping.is_set():
            try:
                done = await self.tick()
                self._outage.worked()
                log.debug("pass", reaped=done.reaped.requeued + done.reaped.ended, tidied=done.tidied)
            except StoreUnavailable as error:
                self._outage.failed(error)
            try:
                async with asyncio.timeout(self._every_s * random.uniform(0.8, 1.0)):  # noqa: S311 - jitter
                    await stopping.wait()
            except TimeoutError:
                continue
        log.info("reaper stopped")

    async def tick(self) -> Pass:
        """Take back lost leases, start due jobs, go on with what others left behind; now and then sweep."""
        reaped = await self._reap()
        await self._upkeep.promote()
        await self._upkeep.propagate()
        tidied = await self._upkeep.tidy()
        return Pass(reaped, tidied, await self._sweep_now_and_then())

    async def _reap(self) -> Reaped:
        """Reap page by page until one is not full."""
        requeued = ended = alive = 0
        while True:
            page = await self._upkeep.reap()
            for job_id in page.ids:
                log.warning("lease lost, job taken back", job=job_id)
            requeued, ended, alive = requeued + page.requeued, ended + page.ended, alive + page.alive
            if not page.more:
                return Reaped(requeued, ended, alive, waiting=page.waiting)

    async def _sweep_now_and_then(self) -> Swept | None:
        if time.monotonic() - self._swept_at < SWEEP_EVERY_S:
            return None
        self._swept_at = time.monotonic()
        swept = await self._upkeep.sweep()
        if swept.deleted or swept.trimmed:
            log.info("swept", deleted=swept.deleted, trimmed=swept.trimmed)
        return swept
