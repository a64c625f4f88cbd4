"""The times of a cron expression in a time zone, also when its clocks change.

An expression names local times. When clocks are set forward, some of these times do not exist; when they are set back,
some occur twice. `Dst` decides what happens then. The time after a given one depends on nothing else, so a schedule
never drifts.
"""

import difflib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from importlib import resources
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from workron.amounts import counted
from workron.errors import InvalidRequest

_ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_ALLOWED: Final = (
    "five fields: minute 0-59, hour 0-23, day of month 1-31 or L, month 1-12 or JAN-DEC, day of week 0-7 or SUN-SAT; "
    "each * or numbers, with lists 1,2, ranges 1-5 and steps */10; or @hourly, @daily, @weekly, @monthly, @yearly"
)
_FIELDS: Final = ("minute", "hour", "day of month", "month", "day of week")
_WALL: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - a time on a wall
_AROUND: Final = timedelta(hours=26)
"""No zone has ever changed its clock by more than a day."""
_STEP: Final = timedelta(hours=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_NOTHING: Final = timedelta()


class Dst(StrEnum):
    """How to treat local times that a change of the clock skips or repeats.

    once: skipped: at the change itself; repeated: the first time.
    skip: skipped: not at all; repeated: the first time.
    twice: skipped: at the change itself; repeated: both times.
    """

    ONCE = "once"
    SKIP = "skip"
    TWICE = "twice"


def zone(name: str) -> ZoneInfo:
    """Return a time zone of the `tzdata` package, so that all machines have the same rules."""
    if name not in _zone_names():
        near = difflib.get_close_matches(name, _zone_names(), 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        allowed = f"Allowed are the names of the IANA database, like UTC or Europe/Berlin{hint}"
        raise InvalidRequest(f"not a time zone: {name!r}. {allowed}", field="timezone")
    return _zone(name)


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    return frozenset((resources.files("tzdata") / "zones").read_text("ascii").split())


@lru_cache(maxsize=256)
def _zone(name: str) -> ZoneInfo:
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def fields(cron: str) -> str:
    """Return the five fields of an expression; raise InvalidRequest, which explains what is allowed."""
    parts = _ALIASES.get(cron.strip().lower(), cron).split()
    if len(parts) != len(_FIELDS):
        raise _not_cron(cron, f"it has {counted(len(parts), 'field')}")
    for index, (name, part) in enumerate(zip(_FIELDS, parts, strict=True)):
        alone = ["*"] * len(_FIELDS)
        alone[index] = part
        try:
            CronSim(" ".join(alone), _WALL)
        except (CronSimError, ValueError, AssertionError):
            raise _not_cron(cron, f"bad {name} {part!r}") from None
    try:
        next(CronSim(" ".join(parts), _WALL))
    except (CronSimError, StopIteration, OverflowError):
        raise InvalidRequest(f"never comes: {cron!r} names a day that its months never have", field="cron") from None
    return " ".join(parts)


def parse(cron: str) -> CronSim:
    """Return the parsed fields of an expression."""
    return CronSim(fields(cron), _WALL)


def _not_cron(cron: str, what: str) -> InvalidRequest:
    return InvalidRequest(f"not a cron expression: {cron!r}, {what}. Allowed are {_ALLOWED}", field="cron")


def usual_dst(cron: str) -> Dst:
    """Return the default: a schedule for every hour also runs in the repeated one."""
    parsed = parse(cron)
    return Dst.TWICE if parsed.parts[2].startswith("*") or len(parsed.hours) == 24 else Dst.ONCE


class Times:
    """The times of one expression in one zone, in ms since 1970."""

    def __init__(self, cron: str, timezone: str, dst: Dst) -> None:
        self._fields = fields(cron)
        self._zone = zone(timezone)
        self._dst = dst

    def after(self, at_ms: int) -> int | None:
        """Return the first time after this one; None if there is none within 50 years."""
        moment = _EPOCH + at_ms * _MS
        local = moment.astimezone(self._zone).replace(tzinfo=None, microsecond=0)
        best: datetime | None = None
        for wall in self._walls(local - self._shift(moment)):
            found = [instant for instant in self._instants(wall) if instant > moment]
            best = min([*found, best] if best else found, default=None)
            earliest = wall.replace(tzinfo=self._zone).astimezone(UTC)
            # When clocks are set forward, a later time on the wall can be an earlier moment, by so much at most.
            if best and earliest - self._shift(earliest) >= best:
                break
        return None if best is None else (best - _EPOCH) // _MS

    def upcoming(self, at_ms: int) -> Iterator[int]:
        """Yield the times after this one."""
        following = self.after(at_ms)
        while following is not None:
            yield following
            following = self.after(following)

    def _walls(self, start: datetime) -> Iterator[datetime]:
        try:
            yield from CronSim(self._fields, start - timedelta(seconds=1))
        except OverflowError:
            return

    def _shift(self, moment: datetime) -> timedelta:
        """The change of the clock within a day of this time."""
        return _shift(self._zone, moment.replace(minute=0, second=0, microsecond=0))

    def _instants(self, wall: datetime) -> list[datetime]:
        """The times in UTC at which local clocks show this time, by the rule of `Dst`."""
        first, second = (wall.replace(tzinfo=self._zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        if first < second:
            return [first, second] if self._dst is Dst.TWICE else [first]
        if first == second:
            return [first]
        return [] if self._dst is Dst.SKIP else [self._change(second, first)]

    def _change(self, before: datetime, behind: datetime) -> datetime:
        """Return the time of the change of the clock between these two, to the second."""
        offset = behind.astimezone(self._zone).utcoffset()
        while behind - before > timedelta(seconds=1):
            middle = (before + (behind - before) / 2).replace(microsecond=0)
            if middle.astimezone(self._zone).utcoffset() == offset:
                behind = middle
            else:
                before = middle
        return behind


@lru_cache(maxsize=4096)
def _shift(where: ZoneInfo, moment: datetime) -> timedelta:
    offsets = set()
    at = moment - _AROUND
    while at <= moment + _AROUND:
        offsets.add(at.astimezone(where).utcoffset() or _NOTHING)
        at += _STEP
    return max(offsets) - min(offsets)
