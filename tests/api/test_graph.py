"""Topological order and cycles of workflows."""

import random
import time

import pytest

from workron.errors import DependencyCycle, InvalidRequest
from workron.specs.graph import number_names, topological_order


def labels(count: int) -> list[str]:
    return [f"job-{number}" for number in range(count)]


def test_jobs_that_are_in_order_stay_where_they_are() -> None:
    assert topological_order([[], [0], [0, 1], []], labels(4)) == [0, 1, 2, 3]


def test_a_job_moves_behind_the_parents_that_stand_after_it() -> None:
    assert topological_order([[2], [], [1]], labels(3)) == [1, 2, 0]


def test_any_acyclic_graph_gets_an_order_with_every_parent_before_its_children() -> None:
    chance = random.Random(7)  # noqa: S311 - not a secret
    for _ in range(200):
        count = chance.randrange(1, 30)
        rank = chance.sample(range(count), count)
        parents = [
            [other for other in range(count) if rank[other] < rank[node] and chance.random() < 0.3]
            for node in range(count)
        ]
        order = topological_order(parents, labels(count))
        place = {node: position for position, node in enumerate(order)}
        assert sorted(order) == list(range(count))
        assert all(place[parent] < place[node] for node in range(count) for parent in parents[node])


def test_a_cycle_is_refused_with_its_members_and_no_other_job() -> None:
    parents = [[], [0, 3], [1], [2], [3]]
    with pytest.raises(DependencyCycle) as caught:
        topological_order(parents, labels(5))
    assert caught.value.members == ("job-1", "job-3", "job-2")


def test_a_job_that_waits_for_itself_is_a_cycle_of_one() -> None:
    with pytest.raises(DependencyCycle) as caught:
        topological_order([[], [1]], labels(2))
    assert caught.value.members == ("job-1",)


def test_a_chain_of_100_000_jobs_in_reverse_is_sorted_within_seconds() -> None:
    count = 100_000
    parents = [[node + 1] if node + 1 < count else [] for node in range(count)]
    started_s = time.monotonic()
    assert topological_order(parents, labels(count)) == list(reversed(range(count)))
    assert time.monotonic() - started_s < 10


def test_one_job_behind_10_000_others_does_not_take_quadratic_time() -> None:
    count = 10_000
    parents: list[list[int]] = [[*range(1, count)], *([] for _ in range(count - 1))]
    started_s = time.monotonic()
    assert topological_order(parents, labels(count))[-1] == 0
    assert time.monotonic() - started_s < 10


def test_a_name_used_twice_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="'build'"):
        number_names(["build", None, None, "build"])
