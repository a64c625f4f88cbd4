"""When a schedule fires, in words. They are made from the parsed fields that also give its times."""

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Final

from cronsim import CronSim

from workron.schedules.times import parse, zone

_WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_WORKING: Final = [1, 2, 3, 4, 5]
_NTH: Final = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth", CronSim.LAST: "last"}
_LAST: Final = {CronSim.LAST: "last day", CronSim.LAST_WEEKDAY: "last weekday"}
_ENDINGS: Final = {1: "st", 2: "nd", 3: "rd"}
_MOST_TIMES: Final = 4
"""Maximum of times of day to list."""
_LEAST_STEPS: Final = 4
"""Minimum of evenly spaced numbers to describe by their step."""


def when(cron: str, timezone: str) -> str:
    """Return the expression in words: `every weekday at 02:30 (Europe/Berlin)`."""
    parsed = parse(cron)
    time, days = _time(sorted(parsed.minutes), sorted(parsed.hours)), _days(parsed)
    if days.startswith("every day") and (time.startswith("every ") or time.endswith("every hour")):
        text = time + days.removeprefix("every day")
    elif days.startswith("every "):
        text = f"{days} {time}" if time.startswith("at ") else f"{time} on {days}"
    else:
        text = f"{time} {days}"
    return f"{text} ({timezone})"


def moment(at_ms: int, timezone: str) -> str:
    """Return a moment as clocks in the zone show it: `Monday, 2 March 2026 at 02:30 CET`."""
    local = datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(zone(timezone))
    seconds = f":{local:%S}" if local.second else ""
    return f"{local:%A}, {local.day} {local:%B %Y} at {local:%H:%M}{seconds} {local.tzname()}"


def _time(minutes: Sequence[int], hours: Sequence[int]) -> str:
    """Return the times of a day: `at 02:30`, `every 5 minutes`, `at minutes 5 and 20 of hours 9 to 17`."""
    if minutes == [0] and (step := _step_of(hours, 24)):
        return "every hour" if step == 1 else f"every {step} hours"
    if len(minutes) * len(hours) <= _MOST_TIMES:
        return f"at {_joined([f'{hour:02}:{minute:02}' for hour in hours for minute in minutes])}"
    of = "every hour" if len(hours) == 24 else _numbered("hour", hours)
    contiguous = hours[-1] - hours[0] == len(hours) - 1
    if minutes == [0] and contiguous:
        return f"every hour from {hours[0]:02}:00 to {hours[-1]:02}:00"
    if (step := _step_of(minutes, 60)) == 0:
        return f"at {_numbered('minute', minutes)} of {of}"
    every = "every minute" if step == 1 else f"every {step} minutes"
    if len(hours) == 24:
        return every
    return f"{every} from {hours[0]:02}:00 to {hours[-1]:02}:{minutes[-1]:02}" if contiguous else f"{every} of {of}"


def _days(parsed: CronSim) -> str:
    """Return the days: `every weekday`, `on the 1st of January`, `on the last Friday of every month`."""
    plain = sorted({day % 7 for day in parsed.weekdays if isinstance(day, int)}, key=lambda day: (day - 1) % 7)
    nth = sorted({(day[0] % 7, day[1]) for day in parsed.weekdays if isinstance(day, tuple)})
    any_day, any_weekday = parsed.days.issuperset(range(1, 32)), len(plain) == len(_WEEKDAYS)
    months = _joined(_spans(sorted(parsed.months), lambda month: _MONTHS[month - 1]))
    within, of = ("", "every month") if len(parsed.months) == len(_MONTHS) else (f" in {months}", months)
    if (any_day and any_weekday) if parsed.day_and else (any_day or any_weekday):
        return f"every day{within}"
    if not parsed.day_and:
        either = f"{_days_of_month(parsed.days)} of the month and on {_joined(_weekdays(plain, nth, 'every'))}"
        return f"on {either}{within and ','}{within}"
    if any_weekday:
        return f"on {_days_of_month(parsed.days)} of {of}"
    if not any_day:
        return f"on {_days_of_month(parsed.days)} of {of} if it is {_joined(_weekdays(plain, nth, 'a'), 'or')}"
    if not nth:
        return f"every {_joined([_WEEKDAYS[day] for day in plain]) if plain != _WORKING else 'weekday'}{within}"
    return f"on {_joined(_weekdays(plain, nth, 'every'))}{within and ','}{within}"


def _weekdays(plain: Sequence[int], nth: Sequence[tuple[int, int]], article: str) -> list[str]:
    """Return days of the week: `every Monday`, `the last Friday of the month`."""
    return [f"{article} {_WEEKDAYS[day]}" for day in plain] + [
        f"the {_NTH[which]} {_WEEKDAYS[day]} of the month" for day, which in nth
    ]


def _days_of_month(days: Collection[int]) -> str:
    """Return days of the month: `the 1st, 3rd to 5th and last day`, `every 2nd day from the 1st to the 31st`."""
    numbers = sorted(day for day in days if day > 0)
    if len(numbers) == len(days) and (step := _step(numbers)):
        return f"every {_ordinal(step)} day from the {_ordinal(numbers[0])} to the {_ordinal(numbers[-1])}"
    return f"the {_joined(_spans(numbers, _ordinal) + [_LAST[day] for day in sorted(days) if day in _LAST])}"


def _step_of(numbers: Sequence[int], whole: int) -> int:
    """Return the step if the numbers are its multiples below `whole`, which it divides; 0 if they are not."""
    step = numbers[1] if len(numbers) > 1 else 0
    return step if step and whole % step == 0 and list(numbers) == list(range(0, whole, step)) else 0


def _step(numbers: Sequence[int]) -> int:
    """Return the step of numbers that are evenly spaced and not consecutive; 0 if they are not, or are few."""
    step = numbers[1] - numbers[0] if len(numbers) >= _LEAST_STEPS else 1
    return step if step > 1 and list(numbers) == list(range(numbers[0], numbers[-1] + 1, step)) else 0


def _numbered(noun: str, numbers: Sequence[int]) -> str:
    """Return `minute 5`, `minutes 1 to 3 and 7`, or `every 2nd minute from 3 to 59`."""
    if step := _step(numbers):
        return f"every {_ordinal(step)} {noun} from {numbers[0]} to {numbers[-1]}"
    return f"{noun}{'' if len(numbers) == 1 else 's'} {_joined(_spans(numbers, str))}"


def _spans(numbers: Sequence[int], name: Callable[[int], str]) -> list[str]:
    """Return the names of the numbers, those of three or more consecutive ones as `A to B`."""
    found: list[str] = []
    for _, group in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        span = [number for _, number in group]
        found += [f"{name(span[0])} to {name(span[-1])}"] if len(span) > 2 else map(name, span)
    return found


def _joined(texts: Sequence[str], last: str = "and") -> str:
    *others, final = texts
    return f"{', '.join(others)} {last} {final}" if others else final


def _ordinal(number: int) -> str:
    return f"{number}{'th' if number in range(11, 14) else _ENDINGS.get(number % 10, 'th')}"
