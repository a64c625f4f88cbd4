"""Durations and times are converted in one place."""

import pytest

from workron.durations import to_ms, to_seconds
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
