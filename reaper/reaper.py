"""The reaper: repeats the maintenance passes. Any number of reapers may run, without a leader.

Leases, bulk actions and schedules have their own timers: the other passes take as
long as they need, and a late lease check would be mistaken for an outage of all workers.
"""

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from reaper.firing import Fired, Firing
from workron import ids
from workron.doctor import Fault
from workron.durations import to_seconds
from workron.errors import StoreBroken, StoreUnavailable
from workron.runtime.async_tools import end
from workron.runtime.logger import log
from workron.runtime.outage import Outage
from workron.runtime.signals import happens
from workron.store import Store
from workron.store.maintenance import PASS_S, Maintenance, Reaped
from workron.store.retention import Swept

SWEEP_EVERY_S: Final = 10.0
MEASURE_EVERY_S: Final = 2.0
SPOT_CHECK_EVERY_S: Final = 2.0
MISSED_PASSES: Final = 3
PASS_MARGIN_S: Final = 5.0
MOST_TOLD: Final = 10_000
"""Maximum of remembered faults, which are logged only once until they are repaired."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Housekeeping:
    """The result of one round of housekeeping."""

    tidied: int
    swept: Swept | None


class Reaper:
    """Repeats its passes `reap`, `keep_house`, `act` and `fire` with `run`."""

    def __init__(self, store: Store, *, every_s: float) -> None:
        self._maintenance: Maintenance = store.maintenance
        self._actions = store.actions
        self._spot_check = store.spot_check
        self._name = ids.new_id()
        self._firing = Firing(store)
        self._every_s = every_s
        self._outage = Outage()
        self._told: set[Fault] = set()
        self._swept_at = self._measured_at = self._spot_checked_at = time.monotonic()
        self._passed_at: float | None = None

    async def problem(self) -> str | None:
        """Return why this reaper is unhealthy: its passes over the leases are missing. None if it is healthy."""
        if self._passed_at is None:
            return "no pass has succeeded yet"
        silent_s = time.monotonic() - self._passed_at
        if silent_s <= MISSED_PASSES * self._every_s + PASS_MARGIN_S:
            return None
        return f"the last pass was {silent_s:.0f} s ago"

    async def run(self, stopping: asyncio.Event) -> None:
        """Run passes until the stop event."""
        log.info("reaper ready", every_s=self._every_s)
        work = (self.reap, self.keep_house, self.act, self.fire)
        loops = [asyncio.create_task(self._repeat(do, stopping)) for do in work]
        try:
            stop = asyncio.create_task(stopping.wait())
            await asyncio.wait([stop, *loops], return_when=asyncio.FIRST_COMPLETED)
            for task in loops:
                if task.done():
                    task.result()
        finally:
            await end([stop, *loops])
        log.info("reaper stopped")

    async def _repeat(self, do: Callable[[], Awaitable[object]], stopping: asyncio.Event) -> None:
        """Repeat a pass, with jitter so that several reapers drift apart."""
        refused = Outage()  # Redis is there, and answers this pass with an error: the others go on
        while not stopping.is_set():
            pause_s = self._every_s * random.uniform(0.8, 1.0)  # noqa: S311 - jitter
            try:
                done = await do()
                if isinstance(done, Fired):
                    pause_s = min(pause_s, _until(done))
                self._outage.worked()
                refused.worked()
            except (ValueError, LookupError, TypeError) as error:
                refused.failed(StoreBroken(f"data in Redis can't be read: {error!r}", retry_after_s=self._every_s))
            except StoreUnavailable as error:
                (self._outage if error.is_outage else refused).failed(error)
            await happens(stopping, within_s=pause_s)

    async def reap(self) -> Reaped:
        """Reclaim jobs with expired leases, page by page until one is not full."""
        requeued = ended = alive = put_off = 0
        while True:
            page = await self._maintenance.reap()
            if page.undone:
                log.error("history rolled back: redis is in an older state than before", passes=page.undone)
            for lost in page.lost:
                log.warning("lease expired, job reclaimed", job=lost.job, attempt=lost.attempt, worker=lost.worker)
            requeued, ended, alive = requeued + page.requeued, ended + page.ended, alive + page.alive
            put_off += page.put_off
            self._passed_at = time.monotonic()
            if not page.more:
                return Reaped(requeued, ended, alive, put_off)

    async def fire(self) -> Fired:
        """Start due occurrences of schedules. The next pass runs at the next occurrence, if that is soon."""
        return await self._firing.fire()

    async def keep_house(self) -> Housekeeping:
        """Promote due jobs and continue unfinished work of other processes; periodically measure, repair and sweep."""
        damaged: list[StoreBroken] = []

        async def spare(step: Awaitable[T]) -> T | None:
            try:
                return await step
            except StoreBroken as error:  # of one key: the other steps are made all the same
                damaged.append(error)
                return None

        await spare(self._maintenance.promote())
        await spare(self._maintenance.rouse())
        await spare(self._maintenance.propagate(PASS_S))
        tidied = await spare(self._maintenance.tidy(PASS_S))
        await spare(self._measure_now_and_then())
        swept = await spare(self._sweep_now_and_then())
        await spare(self._mend_now_and_then())
        if damaged:
            raise damaged[0]
        return Housekeeping(tidied or 0, swept)

    async def act(self) -> int:
        """Work on bulk actions until none is left for this reaper; return the number of rounds.

        After each round it waits as long as the round took, to leave half of Redis' time to others.
        """
        rounds = 0
        while True:
            began = time.monotonic()
            if not await self._actions.step(self._name):
                return rounds
            rounds += 1
            await asyncio.sleep(time.monotonic() - began)

    async def _measure_now_and_then(self) -> None:
        if time.monotonic() - self._measured_at >= MEASURE_EVERY_S:
            self._measured_at = time.monotonic()
            await self._maintenance.measure()

    async def _mend_now_and_then(self) -> None:
        if time.monotonic() - self._spot_checked_at >= SPOT_CHECK_EVERY_S:
            self._spot_checked_at = time.monotonic()
            self._tell(await self._spot_check.look())

    def _tell(self, faults: Sequence[Fault]) -> None:
        """Log similar faults in one line: one broken key may cause a fault of every job."""
        alike: dict[tuple[str, str, bool], list[Fault]] = {}
        for fault in faults:
            if fault.mended or fault not in self._told:
                alike.setdefault((fault.code, fault.detail, fault.mended), []).append(fault)
        for (code, detail, mended), found in alike.items():
            about = {"fault": code, "about": found[0].about, "detail": detail, "others": len(found) - 1}
            if mended:
                log.warning("fault repaired", **about)
            else:
                log.warning("fault found, see `workron doctor`", **about)
                self._told.update(found)
        if len(self._told) > MOST_TOLD:
            self._told.clear()

    async def _sweep_now_and_then(self) -> Swept | None:
        if time.monotonic() - self._swept_at < SWEEP_EVERY_S and not self._maintenance.is_full:
            return None
        swept = await self._maintenance.sweep()
        self._swept_at = -math.inf if swept.more else time.monotonic()
        if swept.early:
            log.warning("redis is full, finished jobs deleted early", jobs=swept.early)
        elif swept.deleted or swept.trimmed:
            log.info("swept", deleted=swept.deleted, trimmed=swept.trimmed)
        return swept


def _until(fired: Fired) -> float:
    return math.inf if fired.next_in_ms is None else to_seconds(fired.next_in_ms)
