"""What is to be done with a schedule now. Nothing here acts: a script compares that all is still as it was seen."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from workron.schedules.models import CatchUp, Schedule
from workron.schedules.times import Times

LATE_MS: Final = 60_000
"""An occurrence that could not be started for so long is missed, as `catch_up: none` understands it."""
STEP: Final = 1000
"""Most occurrences that are passed over in one step."""


class Kind(StrEnum):
    """Which occurrence of a schedule is meant: the next one, the one that waits, or one that somebody asks for."""

    NEXT = "next"
    QUEUED = "queued"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Step:
    """An occurrence to start or, if `missed`, that many from `at_ms` to `last_ms` to pass over.

    `following_ms` is the next occurrence then; None: there is none.
    """

    kind: Kind
    at_ms: int
    last_ms: int
    following_ms: int | None
    missed: int = 0


def plan(schedule: Schedule, now_ms: int) -> Step | None:
    """Return what is to be done with the next occurrence; None if its time has not come."""
    first = schedule.next_at_ms
    if schedule.definition.paused or first is None or first > now_ms:
        return None
    times = times_of(schedule)
    following = times.after(first)
    if schedule.definition.catch_up is CatchUp.ALL:
        return Step(Kind.NEXT, first, first, following)
    passed = [first]
    while following is not None and following <= now_ms and len(passed) <= STEP:
        passed.append(following)
        following = times.after(following)
    if len(passed) > 1:  # all but the newest, with which the next step begins
        return Step(Kind.NEXT, first, passed[-2], passed[-1], missed=len(passed) - 1)
    late = schedule.definition.catch_up is CatchUp.NONE and now_ms - first > LATE_MS
    return Step(Kind.NEXT, first, first, following, missed=1 if late else 0)


def times_of(schedule: Schedule) -> Times:
    """Return the moments that a schedule means."""
    definition = schedule.definition
    return Times(definition.cron, definition.timezone, definition.dst)
