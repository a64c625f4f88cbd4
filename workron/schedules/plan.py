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
    """Return the times of a schedule."""
    definition = schedule.definition
    return Times(definition.cron, definition.timezone, definition.dst)
