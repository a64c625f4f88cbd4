"""Which due occurrences are started, and which are missed."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.schedules import HOUR_MS, definition
from workron.schedules.models import CatchUp, Schedule
from workron.schedules.plan import LATE_MS, STEP, Step, plan

NOON_MS = round(datetime(2026, 3, 2, 12, tzinfo=UTC).timestamp() * 1000)


def schedule(cron: str, catch_up: CatchUp, next_ms: int) -> Schedule:
    return Schedule("s", "v", definition(cron=cron, catch_up=catch_up), 0, 0, next_ms, None, None, {}, ())


def steps(due: Schedule, now_ms: int) -> list[Step]:
    """Return all steps, each after the one before it was done."""
    found = []
    while (step := plan(due, now_ms)) is not None:
        found.append(step)
        due = replace(due, next_at_ms=step.following_ms)
    return found


@pytest.mark.parametrize(
    ("catch_up", "started", "missed"),
    [(CatchUp.NONE, [0], [3]), (CatchUp.LAST, [1, 0], [2]), (CatchUp.ALL, [3, 2, 1, 0], [])],
)
def test_three_missed_occurrences_are_caught_up_although_the_next_one_is_in_time(
    catch_up: CatchUp, started: list[int], missed: list[int]
) -> None:
    found = steps(schedule("0 * * * *", catch_up, NOON_MS - 3 * HOUR_MS), NOON_MS + 30_000)
    assert [step.at_ms for step in found if not step.missed] == [NOON_MS - ago * HOUR_MS for ago in started]
    assert [step.missed for step in found if step.missed] == missed


@pytest.mark.parametrize(
    ("catch_up", "started", "missed"),
    [(CatchUp.NONE, [], [3]), (CatchUp.LAST, [0], [2]), (CatchUp.ALL, [2, 1, 0], [])],
)
def test_occurrences_that_are_all_late(catch_up: CatchUp, started: list[int], missed: list[int]) -> None:
    found = steps(schedule("0 * * * *", catch_up, NOON_MS - 2 * HOUR_MS), NOON_MS + LATE_MS + 1)
    assert [step.at_ms for step in found if not step.missed] == [NOON_MS - ago * HOUR_MS for ago in started]
    assert [step.missed for step in found if step.missed] == missed


@pytest.mark.parametrize("catch_up", CatchUp)
def test_two_occurrences_of_the_last_minute_are_both_in_time(catch_up: CatchUp) -> None:
    found = steps(schedule("* * * * *", catch_up, NOON_MS), NOON_MS + LATE_MS)
    assert [(step.at_ms, step.missed) for step in found] == [(NOON_MS, 0), (NOON_MS + 60_000, 0)]


def test_many_missed_occurrences_are_skipped_in_steps() -> None:
    found = steps(schedule("* * * * *", CatchUp.LAST, NOON_MS), NOON_MS + (STEP + 500) * 60_000 + 30_000)
    assert [step.missed for step in found] == [STEP, 499, 0, 0]
    assert [step.last_ms for step in found[:2]] == [NOON_MS + number * 60_000 for number in (STEP - 1, STEP + 498)]
