"""Plans what to do with a schedule now. The script that does it checks first that the schedule has not changed."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from workron.schedules.models import CatchUp, Schedule
from workron.schedules.times import Times

LATE_MS: Final = 60_000
"""An occurrence that is later than this is missed, and `catch_up` decides."""
STEP: Final = 1000
"""Maximum of missed occurrences in one step."""


class Kind(StrEnum):
    """The kind of occurrence: the next one, the queued one, or a run that a user requests."""

    NEXT = "next"
    QUEUED = "queued"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Step:
    """An occurrence to start or, if `missed` is not 0, that number of occurrences to skip, from `at_ms` to `last_ms`.

    `following_ms` is the occurrence after it; None: there is none.
    """

    kind: Kind
    at_ms: int
    last_ms: int
    following_ms: int | None
    missed: int = 0


def plan(schedule: Schedule, now_ms: int) -> Step | None:
    """Return what to do with the next occurrence; None if it is not due."""
    first = schedule.next_at_ms
    if schedule.definition.paused or first is None or first > now_ms:
        return None
    times = times_of(schedule)
    last, missed = first, 0
    at: int | None = first
    following = times.after(first)
    while at is not None and missed < STEP and _is_skipped(schedule, at, following, now_ms):
        last, missed = at, missed + 1
        at, following = following, times.after(following) if following is not None else None
    return Step(Kind.NEXT, first, last, at if missed else following, missed)


def _is_skipped(schedule: Schedule, at: int, following: int | None, now_ms: int) -> bool:
    """Return whether an occurrence is missed and not to be started."""
    match schedule.definition.catch_up:
        case CatchUp.NONE:
            return now_ms - at > LATE_MS
        case CatchUp.LAST:  # unless the one after it is in time, or yet to come
            return following is not None and now_ms - following > LATE_MS
        case CatchUp.ALL:
            return False


def times_of(schedule: Schedule) -> Times:
    """Return the times of a schedule."""
    definition = schedule.definition
    return Times(definition.cron, definition.timezone, definition.dst)
