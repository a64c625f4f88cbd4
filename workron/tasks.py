"""Ending background tasks for sure."""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

_AGAIN_S: Final = 0.1


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and return when they have ended; what they raise is theirs.

    One cancel is not enough: a library may swallow it. Before Python 3.12 `asyncio.wait_for` does, if the cancel comes
    just when it is done.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_AGAIN_S)
