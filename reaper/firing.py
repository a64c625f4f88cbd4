"""Fires schedules: starts due occurrences. Any number of processes may do it, without a leader.

The next step is planned here, and one script executes it only if the schedule is unchanged: of two processes that
plan the same step, one executes it, and the other finds it done.
"""

import asyncio
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from workron.durations import to_ms
from workron.errors import (
    Conflict,
    GivenUp,
    IdempotencyConflict,
    InvalidRequest,
    QueueFull,
    StoreBroken,
    StoreFull,
)
from workron.runtime.logger import log
from workron.schedules.models import Schedule, Work
from workron.schedules.plan import LATE_MS, Kind, Step, plan
from workron.specs.schedule import expand
from workron.store import Store
from workron.store.occurrence import submit

PAGE: Final = 40
PAGES: Final = 50
"""Schedules processed concurrently, and pages of them per pass."""
STEPS: Final = 50
"""Maximum of steps per schedule and pass, so that others get their turn."""
_LARGE: Final = 100
_LONGEST_REASON: Final = 500


@dataclass(frozen=True, slots=True)
class Fired:
    """The result of a pass: started occurrences, and the ms until the next one, None if none is known."""

    started: int
    next_in_ms: int | None


class Did(Enum):
    """The outcome of an attempt to start an occurrence."""

    STARTED = auto()
    MOVED = auto()
    """The schedule has changed: another process started the occurrence, or it is skipped, queued or refused."""
    WAITS = auto()


class Firing:
    """Processes due schedules."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._book = store.schedules

    async def fire(self) -> Fired:
        """Process due schedules, page by page; failing schedules do not block others."""
        started = stuck = 0
        for _ in range(PAGES):
            due = await self._book.due(stuck, PAGE)
            if not due.names:
                return Fired(started, due.next_in_ms)
            done = await asyncio.gather(*map(self._work_on, due.names))
            started += sum(done)
            still = await self._book.due(stuck, PAGE)
            stuck += len(set(still.names) & set(due.names))
        return Fired(started, 0)

    async def _work_on(self, name: str) -> int:
        """Process one schedule as far as possible; return the number of started occurrences."""
        started = 0
        try:
            for _ in range(STEPS):
                schedule, now_ms = await self._book.look(name)
                if schedule is None:
                    break
                did = await self._step(schedule, now_ms)
                started += did is Did.STARTED
                if did is Did.WAITS:
                    break
        except (StoreBroken, InvalidRequest) as error:
            log.warning("schedule failed", schedule=name, error=str(error))
        return started

    async def _step(self, schedule: Schedule, now_ms: int) -> Did:
        """Start the queued occurrence if possible; otherwise process the due one."""
        step = await _planned(schedule, now_ms)
        if schedule.queued_at_ms is not None and not schedule.definition.paused:
            did = await self._start(schedule, _queued(schedule.queued_at_ms))
            if did is not Did.WAITS or step is None:
                return did
        if step is None:
            return Did.WAITS
        if not step.missed:
            return await self._start(schedule, step)
        await self._book.move(schedule, step, "missed", number=step.missed)
        return Did.MOVED

    async def _start(self, schedule: Schedule, step: Step) -> Did:
        """Start an occurrence, or record why it was not started."""
        try:
            work = await self._jobs_of(schedule)
            submitted = await submit(
                self._store, schedule, work, kind=step.kind, at_ms=step.at_ms, following_ms=step.following_ms
            )
        except IdempotencyConflict:
            held = await self._book.move(schedule, step, "hold")
            return Did.WAITS if held and step.kind is Kind.QUEUED else Did.MOVED
        except GivenUp:  # another reaper that staged it, too, was stopped or refused: there are other ids for it
            return Did.WAITS
        except (QueueFull, StoreFull, StoreBroken) as error:
            await self._book.move(schedule, step, "later", number=to_ms(error.retry_after_s))
            return Did.WAITS
        except (InvalidRequest, Conflict) as error:
            log.warning("occurrence rejected", schedule=schedule.name, at_ms=step.at_ms, error=str(error))
            await self._book.move(schedule, step, "refused", text=str(error)[:_LONGEST_REASON])
            return Did.MOVED
        if submitted.returned:  # another job holds the unique key: noted as skipped
            return Did.MOVED
        log.debug("fired", schedule=schedule.name, at_ms=step.at_ms, job=submitted.ids[0])
        return Did.STARTED

    async def _jobs_of(self, schedule: Schedule) -> Work:
        work = schedule.definition.work
        if len(work.get("jobs", ())) > _LARGE:
            return await asyncio.to_thread(expand, schedule.definition)
        return expand(schedule.definition)


async def _planned(schedule: Schedule, now_ms: int) -> Step | None:
    """Plan in a thread if many occurrences may have to be skipped, so that leases are checked meanwhile."""
    first = schedule.next_at_ms
    if first is not None and now_ms - first > LATE_MS:
        return await asyncio.to_thread(plan, schedule, now_ms)
    return plan(schedule, now_ms)


def _queued(at_ms: int) -> Step:
    return Step(Kind.QUEUED, at_ms, at_ms, None)
