"""Pytest plugin: how many processes the tests are spread over, as `-n auto` in pyproject.toml asks, and in which order.

Each process gets an equal share of the list of tests; who is through takes tests from the end of another's share.
"""

import os
from pathlib import Path
from typing import Final

import pytest

MOST: Final = 4
"""The tests start servers and workers of their own, and some of them look at the time."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores, because a third of the time is waiting; none for files and tests by name."""
    if all(is_folder(argument) for argument in config.args):
        return min(len(os.sched_getaffinity(0)) + 1, MOST)
    return 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    """Tests that share a costly fixture come first, where nobody takes some of them away; then the longest ones."""
    return next((place for place, name in enumerate(("together", "chaos")) if item.get_closest_marker(name)), 2)


def is_folder(argument: str) -> bool:
    return Path(argument).is_dir()
