"""When a schedule fires, in words."""

import re
from datetime import UTC, datetime
from typing import Final

from cronsim import CronSim

from workron.schedules.times import fields, zone

_EPOCH: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - a time on a wall
_DAY: Final = r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
_NICER: Final = (
    (re.compile(r"At (.+) on Monday through Friday"), r"every weekday at \1"),
    (re.compile(r"At (.+) every day"), r"every day at \1"),
    (re.compile(rf"At (.+) on ({_DAY}(?:(?:, | and |, and ){_DAY})*)"), r"every \2 at \1"),
    (re.compile(r"At the start of every hour"), "every hour"),
)


def when(cron: str, timezone: str) -> str:
    """Return the expression in words: `every weekday at 02:30 (Europe/Berlin)`."""
    text = CronSim(fields(cron), _EPOCH).explain()
    for pattern, nicer in _NICER:
        if (match := pattern.fullmatch(text)) is not None:
            return f"{match.expand(nicer)} ({timezone})"
    return f"{text[0].lower()}{text[1:]} ({timezone})"


def moment(at_ms: int, timezone: str) -> str:
    """Return a moment as clocks in the zone show it: `Monday, 2 March 2026 at 02:30 CET`."""
    local = datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(zone(timezone))
    seconds = f":{local:%S}" if local.second else ""
    return f"{local:%A}, {local.day} {local:%B %Y} at {local:%H:%M}{seconds} {local.tzname()}"
