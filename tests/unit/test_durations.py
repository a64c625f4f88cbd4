"""Durations and times are converted in one place."""

import pytest

from workron.durations import format_duration, parse_duration, readable, to_ms, to_seconds
from workron.times import redis_ms


@pytest.mark.parametrize(
    ("seconds", "ms"), [(None, None), (0, 0), (0.0001, 1), (0.0015, 2), (1.5, 1500), (86400, 86_400_000)]
)
def test_a_positive_duration_is_at_least_a_millisecond(seconds: float | None, ms: int | None) -> None:
    assert to_ms(seconds) == ms


@pytest.mark.parametrize(("ms", "seconds"), [(None, None), (0, 0.0), (1500, 1.5)])
def test_milliseconds_are_shown_as_seconds(ms: int | None, seconds: float | None) -> None:
    assert to_seconds(ms) == seconds


def test_the_time_of_redis_is_cut_to_milliseconds() -> None:
    assert redis_ms([b"1700000000", b"999999"]) == 1_700_000_000_999


@pytest.mark.parametrize("seconds", [0.001, 0.25, 90, 2_160_001, 1_234_567.5, 31_622_400, 123_456_789.125, 172_800])
def test_a_duration_is_written_as_options_take_it(seconds: float) -> None:
    written = format_duration(seconds)
    assert "e" not in written
    assert parse_duration(written) == seconds


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.25, "0.2s"),
        (9.96, "10s"),
        (12.4, "12s"),
        (200, "3m 20s"),
        (7_500, "2h 5m"),
        (3_599.9, "1h"),
        (86_399, "1d"),
        (2_159_999, "25d"),
        (2_156_400, "24d 23h"),
    ],
)
def test_a_duration_is_shown_in_at_most_two_units(seconds: float, shown: str) -> None:
    assert readable(seconds) == shown
