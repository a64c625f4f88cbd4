"""The counts of the bench, on a few jobs; times are nobody's promise."""

import json
from collections.abc import Iterator

import pytest

from bench import counts
from bench.server import Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server("valkey") as running:
        yield running


@pytest.fixture(scope="module")
def found(server: Server) -> dict[str, float]:
    return counts.count(server, jobs=1_000)


def test_a_job_takes_few_round_trips_at_depth_and_when_idle(found: dict[str, float]) -> None:
    assert 0 < found["round trips per job at depth"] <= 0.1
    assert 2 <= found["round trips per job when idle"] <= 5


def test_a_waiting_job_is_small(found: dict[str, float]) -> None:
    assert 150 < found["bytes per waiting job"] <= 380


def test_everything_that_has_a_budget_is_counted(found: dict[str, float]) -> None:
    budget = json.loads(counts.BUDGET.read_text())
    assert set(found) == set(budget)
    assert all(value > 0 for value in found.values())


def test_a_figure_above_its_budget_is_named() -> None:
    lines = counts.over({"a": 2.0, "b": 1.0, "c": 1.0}, {"a": 1.5, "b": 1.0, "d": 3.0})
    assert lines == ["c: no budget", "d: not counted any more", "a: 2.000 is over 1.500"]
