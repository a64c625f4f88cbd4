"""Which moments a cron expression means, around the changes of clocks in several zones."""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from workron.errors import InvalidRequest
from workron.schedules.times import Dst, Times, fields, usual_dst, zone

HOUR = 3_600_000
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Tokyo", "Pacific/Apia", "Africa/Casablanca")


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text + "Z").timestamp() * 1000)


def utc(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%m-%dT%H:%M}"


def moments(cron: str, timezone: str, dst: Dst, after: str, count: int) -> list[str]:
    return [utc(at_ms) for at_ms in islice(Times(cron, timezone, dst).upcoming(ms(after)), count)]


@pytest.mark.parametrize(
    ("timezone", "cron", "after", "left_out", "others"),
    [
        ("Europe/Berlin", "30 2 * * *", "2026-03-28T12:00", "03-29T01:00", ["03-30T00:30", "03-31T00:30"]),
        ("America/New_York", "30 2 * * *", "2026-03-07T12:00", "03-08T07:00", ["03-09T06:30", "03-10T06:30"]),
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T00:00", "10-03T15:30", ["10-04T15:15", "10-05T15:15"]),
    ],
)
def test_a_time_that_clocks_leave_out_comes_at_the_change_or_not(
    timezone: str, cron: str, after: str, left_out: str, others: list[str]
) -> None:
    for dst in (Dst.ONCE, Dst.TWICE):
        assert moments(cron, timezone, dst, after, 3) == [left_out, *others]
    assert moments(cron, timezone, Dst.SKIP, after, 2) == others


@pytest.mark.parametrize(
    ("timezone", "cron", "after", "first", "second", "behind"),
    [
        ("Europe/Berlin", "30 2 * * *", "2026-10-24T12:00", "10-25T00:30", "10-25T01:30", "10-26T01:30"),
        ("America/New_York", "30 1 * * *", "2026-10-31T12:00", "11-01T05:30", "11-01T06:30", "11-02T06:30"),
        ("Australia/Lord_Howe", "45 1 * * *", "2026-04-04T00:00", "04-04T14:45", "04-04T15:15", "04-05T15:15"),
    ],
)
def test_a_time_that_clocks_show_twice_comes_once_or_twice(
    timezone: str, cron: str, after: str, first: str, second: str, behind: str
) -> None:
    for dst in (Dst.ONCE, Dst.SKIP):
        assert moments(cron, timezone, dst, after, 2) == [first, behind]
    assert moments(cron, timezone, Dst.TWICE, after, 3) == [first, second, behind]


@pytest.mark.parametrize("dst", Dst)
def test_a_zone_without_changes_has_none(dst: Dst) -> None:
    found = list(islice(Times("30 2 * * *", "Asia/Tokyo", dst).upcoming(ms("2026-01-01T00:00")), 400))
    assert {later - earlier for earlier, later in pairwise(found)} == {24 * HOUR}


@pytest.mark.parametrize(("timezone", "minutes"), [("Europe/Berlin", 20), ("Australia/Lord_Howe", 15)])
def test_an_interval_that_comes_twice_never_pauses(timezone: str, minutes: int) -> None:
    times = Times(f"*/{minutes} * * * *", timezone, Dst.TWICE)
    found = list(islice(times.upcoming(ms("2026-01-01T00:00")), 365 * 24 * 60 // minutes))
    gaps = {later - earlier for earlier, later in pairwise(found)}
    assert gaps == {minutes * 60_000}


def test_a_day_that_a_zone_left_out_comes_at_the_change() -> None:
    assert moments("0 12 * * *", "Pacific/Apia", Dst.ONCE, "2011-12-29T12:00", 3) == [
        *("12-29T22:00", "12-30T10:00", "12-30T22:00")
    ]


def test_an_hourly_schedule_goes_on_through_a_repeated_hour_unless_it_says_otherwise() -> None:
    assert [usual_dst(cron) for cron in ("@hourly", "*/10 * * * *", "30 2 * * *", "0 */2 * * *", "0 0-23 * * *")] == [
        *(Dst.TWICE, Dst.TWICE, Dst.ONCE, Dst.TWICE, Dst.TWICE)
    ]


def instants(cron: str, timezone: str, dst: Dst, start: datetime, days: int) -> set[datetime]:
    """The same by brute force: every time on the wall, and by what is said of it, the moments at which it is."""
    where = zone(timezone)
    found = set()
    walls = CronSim(cron, start.replace(tzinfo=None) - timedelta(days=2))
    for wall in walls:
        if wall > start.replace(tzinfo=None) + timedelta(days=days + 2):
            return found
        both = [wall.replace(tzinfo=where, fold=fold).astimezone(UTC) for fold in (0, 1)]
        real = sorted({one for one in both if one.astimezone(where).replace(tzinfo=None) == wall})
        if real:
            found |= set(real if dst is Dst.TWICE else real[:1])
        elif dst is not Dst.SKIP:
            minute = min(both)
            while minute.astimezone(where).utcoffset() == min(both).astimezone(where).utcoffset():
                minute += timedelta(minutes=1)
            found.add(minute.replace(second=0))
    raise AssertionError


@settings(max_examples=150, deadline=None)
@given(
    timezone=st.sampled_from(ZONES),
    dst=st.sampled_from(Dst),
    minute=st.sampled_from(["0", "30", "15,45", "*/7", "59"]),
    hour=st.sampled_from(["*", "0", "1,2,3", "23", "*/5"]),
    rest=st.sampled_from(["* * *", "* * 0", "1,L * *", "* 3,4,10,11 *"]),
    start=st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31)),  # noqa: DTZ001 - see below
)
def test_moments_match_a_search_of_every_minute(
    timezone: str, dst: Dst, minute: str, hour: str, rest: str, start: datetime
) -> None:
    cron, start = f"{minute} {hour} {rest}", start.replace(tzinfo=UTC, microsecond=0)
    expected = sorted(one for one in instants(cron, timezone, dst, start, 4) if one > start)
    times = Times(cron, timezone, dst).upcoming(round(start.timestamp() * 1000))
    until = start + timedelta(days=4)
    found = []
    for at_ms in times:
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
        if moment > until:
            break
        found.append(moment)
    assert found == [one for one in expected if one <= until]


@settings(max_examples=60, deadline=None)
@given(
    timezone=st.sampled_from(ZONES),
    dst=st.sampled_from(Dst),
    late_ms=st.lists(st.integers(0, 3 * 24 * HOUR), min_size=1, max_size=5),
)
def test_nothing_drifts_however_late_one_asks(timezone: str, dst: Dst, late_ms: list[int]) -> None:
    times = Times("30 2 * * *", timezone, dst)
    start = ms("2026-03-01T00:00")
    every = list(islice(times.upcoming(start), 60))
    at = start
    for late in late_ms:
        at = next(one for one in every if one > at + late)
        assert times.after(at - 1) == at


@pytest.mark.parametrize(
    ("cron", "told"),
    [
        ("", "0 fields"),
        ("1 2 3", "3 fields"),
        ("0 0 1 1 * 2026", "6 fields"),
        ("60 * * * *", "bad minute"),
        ("* 24 * * *", "bad hour"),
        ("* * 0 * *", "bad day of month"),
        ("* * * 13 *", "bad month"),
        ("* * * * 8", "bad day of week '8'"),
        ("*/0 * * * *", "bad minute"),
        ("5-1 * * * *", "bad minute"),
        ("L/2 * * * *", "bad minute"),
        ("٣ * * * *", "bad minute"),
        ("@reboot", "1 field"),
    ],
)
def test_what_is_no_cron_expression_is_refused_with_what_is_allowed(cron: str, told: str) -> None:
    with pytest.raises(InvalidRequest, match="minute 0-59, hour 0-23") as refused:
        fields(cron)
    assert told in str(refused.value)
    assert refused.value.field == "cron"


@pytest.mark.parametrize("cron", ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 */30 2 1#5", "0 0 30,31 feb *"])
def test_a_day_that_never_comes_is_refused_as_such_and_not_as_a_bad_field(cron: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^never comes: .* names a day that its months never have$") as refused:
        fields(cron)
    assert refused.value.field == "cron"


@pytest.mark.parametrize(
    "cron", ["0 0 29 2 *", "0 0 31 1,2 *", "0 0 31 2 1", "0 0 L 2 *", "0 0 31,L 2 *", "0 0 */28 2 1#5"]
)
def test_a_rare_day_is_accepted(cron: str) -> None:
    assert Times(cron, "UTC", Dst.ONCE).after(ms("2026-01-01T00:00")) is not None


@pytest.mark.parametrize("name", ["", "Berlin", "europe/berlin", "../../etc/passwd", "Europe", "CEST", "\x00", "zones"])
def test_what_is_no_time_zone_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="IANA") as refused:
        zone(name)
    assert refused.value.field == "timezone"


def test_a_misspelt_zone_gets_a_suggestion() -> None:
    with pytest.raises(InvalidRequest, match="did you mean Europe/Berlin"):
        zone("Europe/Belrin")
