"""How a look reports its progress."""

from collections.abc import Callable

Say = Callable[[str, int, int], object]
"""Receives what the look does now, how much of it is done, and how much there is (0: unknown)."""


def silent(what: str, done: int, total: int) -> None:
    """Report nothing."""
