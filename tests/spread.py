"""Pytest plugin: how many processes the tests are spread over, as `-n auto` in pyproject.toml asks."""

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


def is_folder(argument: str) -> bool:
    return Path(argument).is_dir()
