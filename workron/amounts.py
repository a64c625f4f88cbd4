"""Amounts in messages: a number and its noun, and some of many names."""

from collections.abc import Sequence
from typing import Final

MOST_NAMED: Final = 8


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return `1 job` or `2,000 jobs`; `many` is the plural if it is not `one` with an s, such as `jobs wait`."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def some(names: Sequence[str]) -> str:
    """Return the names, at most a few of them: `a, b, c and 1,497 more`."""
    rest = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {rest:,} more" if rest > 0 else "")
