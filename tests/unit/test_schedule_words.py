"""The words of a cron expression claim what its times are."""

import calendar
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from tests.budget import budget
from workron.errors import InvalidRequest
from workron.schedules import words
from workron.schedules.times import Dst, Times

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
DAY_MS = 86_400_000
START = datetime(2026, 3, 1, tzinfo=UTC)
DAYS = 400

Days = Callable[[date], bool]


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("30 2 * * 1-5", "every weekday at 02:30"),
        ("@daily", "every day at 00:00"),
        ("0 9 * * 1,3", "every Monday and Wednesday at 09:00"),
        ("@hourly", "every hour"),
        ("0 0-23 * * *", "every hour"),
        ("*/5 9-17 * * 1-5", "every 5 minutes from 09:00 to 17:55 on every weekday"),
        ("* 9,11 * * *", "every minute of hours 9 and 11"),
        ("5,20 9-17 * jun *", "every day in June at minutes 5 and 20 of hours 9 to 17"),
        ("0 0 L * *", "at 00:00 on the last day of every month"),
        ("0 0 LW 1 *", "at 00:00 on the last weekday of January"),
        ("0 0 1-31 * 1", "every day at 00:00"),
        ("0 0 1 * 0-6", "every day at 00:00"),
        ("0 0 1,15 * 5", "at 00:00 on the 1st and 15th of the month and on every Friday"),
        ("0 0 1 1 5L", "at 00:00 on the 1st of the month and on the last Friday of the month, in January"),
        ("0 0 1-7 * */7", "at 00:00 on the 1st to 7th of every month if it is a Sunday"),
        ("0 0 */2 * *", "at 00:00 on every 2nd day from the 1st to the 31st of every month"),
        (
            "0 0 * * 1#1,5L,1",
            "at 00:00 on every Monday, the first Monday of the month and the last Friday of the month",
        ),
    ],
)
def test_expressions_are_described_in_words(cron: str, expected: str) -> None:
    assert words.when(cron, "Europe/Berlin") == f"{expected} (Europe/Berlin)"


def test_a_moment_is_described_as_clocks_show_it() -> None:
    at_ms = round(datetime(2026, 3, 2, 1, 30, tzinfo=UTC).timestamp() * 1000)
    assert words.moment(at_ms, "Europe/Berlin") == "Monday, 2 March 2026 at 02:30 CET"


def terms(least: int, most: int, *others: str) -> st.SearchStrategy[str]:
    """Return fields: numbers, ranges, steps and lists of them; often `*`."""
    number = st.integers(least, most)
    span = st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}")
    whole = st.sampled_from(["*", f"{least}-{most}", *others])
    stepped = st.tuples(st.one_of(st.just("*"), span, number.map(str)), st.integers(1, 15)).map(
        lambda pair: f"{pair[0]}/{pair[1]}"
    )
    one = st.one_of(number.map(str), span, stepped, whole)
    return st.one_of(st.just("*"), one, st.lists(one, min_size=2, max_size=4).map(",".join))


EXPRESSIONS = st.builds(
    "{} {} {} {} {}".format,
    terms(0, 59),
    terms(0, 23),
    terms(1, 31, "L", "LW"),
    terms(1, 12, "JAN", "feb-apr"),
    terms(0, 7, "mon", "SAT", "1-5", "2#1", "5L", "7#5", "0#4", "0L"),
)


@settings(max_examples=budget(100, 1000), deadline=None)
@given(cron=EXPRESSIONS)
def test_the_words_of_any_expression_claim_its_runs_of_400_days(cron: str) -> None:
    try:
        claim = words.when(cron, "UTC")
    except InvalidRequest:
        reject()  # it never comes
    days, minutes = claimed(claim.removesuffix(" (UTC)"))
    times = Times(cron, "UTC", Dst.ONCE)
    found, at_ms = [], round(START.timestamp() * 1000) - 1
    while (next_ms := times.after(at_ms)) is not None and next_ms < START.timestamp() * 1000 + DAYS * DAY_MS:
        found.append(next_ms // DAY_MS)
        at_ms = next_ms // DAY_MS * DAY_MS + DAY_MS - 1
    first = START.date()
    expected = [first + timedelta(days=number) for number in range(DAYS)]
    assert [date.fromordinal(date(1970, 1, 1).toordinal() + day) for day in found] == [*filter(days, expected)]
    for day in found[:1] + found[1:][-1:]:
        assert minutes_of(times, day * DAY_MS) == minutes


def minutes_of(times: Times, day_ms: int) -> set[int]:
    """Return the minutes of this day, since midnight, at which it fires."""
    found = set()
    for at_ms in times.upcoming(day_ms - 1):
        if at_ms >= day_ms + DAY_MS:
            break
        found.add((at_ms - day_ms) // 60_000)
    return found


def claimed(text: str) -> tuple[Days, set[int]]:
    """Return what words claim: which days, and which minutes of each, since midnight."""
    if (match := re.fullmatch(r"(every .+?) (at .+)", text)) and " on " not in match[1]:
        return day_of(match[1]), minutes_in(match[2])
    if match := re.fullmatch(r"((?:at|every) .+?) on (.+)", text):
        return day_of(match[2]), minutes_in(match[1])
    time, _, months = text.partition(" in ")
    return in_months(months), minutes_in(time)


def minutes_in(time: str) -> set[int]:
    if match := re.fullmatch(r"every hour(?: from (\d\d):00 to (\d\d):00)?", time):
        return {hour * 60 for hour in range(int(match[1] or 0), int(match[2] or 23) + 1)}
    if match := re.fullmatch(r"every (\d+) hours", time):
        return set(range(0, 1440, 60 * int(match[1])))
    if match := re.fullmatch(r"every (?:minute|(\d+) minutes)(?: from (\d\d):00 to (\d\d):(\d\d)| of (.+))?", time):
        found = set(range(0, 1440, int(match[1] or 1)))
        last = int(match[3] or 23) * 60 + int(match[4] or 59)
        hours = numbers(match[5], "hour", 24) if match[5] else range(24)
        return {minute for minute in found if int(match[2] or 0) * 60 <= minute <= last and minute // 60 in hours}
    if match := re.fullmatch(r"at ((?:every \d+\w\w )?minutes? .+) of (.+)", time):
        return {
            hour * 60 + minute for hour in numbers(match[2], "hour", 24) for minute in numbers(match[1], "minute", 60)
        }
    clock = re.split(", | and ", time.removeprefix("at "))
    return {int(one[:2]) * 60 + int(one[3:]) for one in clock}


def numbers(text: str, noun: str, whole: int) -> set[int]:
    if text == f"every {noun}":
        return set(range(whole))
    if match := re.fullmatch(rf"every (\d+)\w\w {noun} from (\d+) to (\d+)", text):
        return set(range(int(match[2]), int(match[3]) + 1, int(match[1])))
    assert re.match(rf"{noun}s? ", text)
    return {number for part in listed(text.partition(" ")[2]) for number in spanned(part, int)}


def listed(text: str) -> list[str]:
    return re.split(", | and | or ", text)


def spanned(text: str, number: Callable[[str], int]) -> range:
    first, _, last = text.partition(" to ")
    return range(number(first), number(last or first) + 1)


def in_months(text: str) -> Days:
    names = list(calendar.month_name)
    months = {number for part in listed(text) for number in spanned(part, names.index)} if text else set(range(1, 13))
    return lambda day: day.month in months


def day_of(text: str) -> Days:
    """Return the days of `every weekday in June`, `the 1st of May if it is a Monday`."""
    text, _, months = text.partition(", in ") if ", in " in text else text.partition(" in ")
    within = in_months(months)
    both, _, condition = text.partition(" if it is ")
    parts = [one_day_of(part) for part in both.split(" and on ")]
    allowed = weekday(condition) if condition else lambda _: True
    return lambda day: within(day) and allowed(day) and any(part(day) for part in parts)


def one_day_of(text: str) -> Days:
    if text == "every day":
        return lambda _: True
    if match := re.fullmatch(r"every (\d+)\w\w day from the (\d+)\w\w to the (\d+)\w\w of (.+)", text):
        days, within = range(int(match[2]), int(match[3]) + 1, int(match[1])), months_of(match[4])
        return lambda day: day.day in days and within(day)
    if match := re.fullmatch(r"the ((?:\d|last (?:week)?day).*) of (.+)", text):
        parts, within = [day_of_month(part) for part in listed(match[1])], months_of(match[2])
        return lambda day: within(day) and any(part(day) for part in parts)
    return weekday(text)


def months_of(text: str) -> Days:
    return in_months("" if text in ("every month", "the month") else text)


def day_of_month(text: str) -> Days:
    if text == "last day":
        return lambda day: (day + timedelta(days=1)).day == 1
    if text == "last weekday":
        return lambda day: (
            day.weekday() < 5
            and all(
                later.month != day.month or later.weekday() > 4
                for later in (day + timedelta(days=n) for n in range(1, 7))
            )
        )
    days = spanned(text, lambda number: int(re.sub(r"\D", "", number)))
    return lambda day: day.day in days


def weekday(text: str) -> Days:
    parts = [one_weekday(part) for part in listed(text)]
    return lambda day: any(part(day) for part in parts)


def one_weekday(text: str) -> Days:
    if match := re.fullmatch(r"the (\w+) (\w+) of the month", text):
        nth, name = match.groups()
        if nth == "last":
            return lambda day: WEEKDAYS[day.weekday()] == name and (day + timedelta(days=7)).month != day.month
        week = ("first", "second", "third", "fourth", "fifth").index(nth)
        return lambda day: WEEKDAYS[day.weekday()] == name and (day.day - 1) // 7 == week
    name = re.sub("^(every|a) ", "", text)
    return lambda day: day.weekday() < 5 if name == "weekday" else day.weekday() == WEEKDAYS.index(name)
