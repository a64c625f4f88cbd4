"""Some cron lines, and what they mean in a few lines of Python: nothing here is shared with the scheduler."""

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Final

from tests.model.bridge import MINUTE
from workron.schedules.times import Dst

_HOUR, _DAY = 60, 24 * 60
_THURSDAY: Final = 4
"""The first of January 1970."""


@dataclass(frozen=True)
class Line:
    """A cron line in a zone whose clocks are `ahead` minutes ahead, and never set. Sunday is 0."""

    cron: str
    minutes: Container[int] = field(default=range(60), compare=False)
    hours: Container[int] = field(default=range(24), compare=False)
    weekdays: Container[int] = field(default=range(7), compare=False)
    timezone: str = "UTC"
    ahead: int = 0
    dst: Dst = Dst.ONCE

    def after(self, at: int) -> int:
        """The first time behind this one."""
        minute = at // MINUTE + 1
        while not self._names(minute + self.ahead):
            minute += 1
        return minute * MINUTE

    def _names(self, minute: int) -> bool:
        day, of_day = divmod(minute, _DAY)
        hour, of_hour = divmod(of_day, _HOUR)
        return of_hour in self.minutes and hour in self.hours and (day + _THURSDAY) % 7 in self.weekdays


LINES: Final = [
    Line("*/5 * * * *", range(0, 60, 5)),
    Line("*/5 * * * *", range(0, 60, 5), dst=Dst.TWICE),
    Line("*/20 * * * *", range(0, 60, 20)),
    Line("7,37 * * * *", (7, 37)),
    Line("*/3 * * * *", range(0, 60, 3)),
    Line("0 * * * *", (0,), timezone="Asia/Kolkata", ahead=330),
    Line("15 4-6 * * 1-5", (15,), range(4, 7), range(1, 6)),
]
