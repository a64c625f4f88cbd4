"""Background tasks that are reliably ended, or completed independent of their caller."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Final, TypeVar

from workron.errors import is_outage

_T = TypeVar("_T")
_AGAIN_S: Final = 0.1


async def first_end(main: asyncio.Task[None], others: Iterable[asyncio.Task[None]]) -> None:
    """Return when `main` has ended, or raise the error of any task; other tasks may end earlier."""
    left = {main, *others}
    while not main.done():
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()


async def unless(event: asyncio.Event, work: Coroutine[Any, Any, _T]) -> _T | None:
    """Return the result of the work; cancel it and return None if the event is set first."""
    working, waiting = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([working, waiting], return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        await end([working, waiting])


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and return when they have ended; ignore their errors.

    One cancel is not enough: a library may swallow it. Before Python 3.12 `asyncio.wait_for` does, if it is cancelled
    at the moment it completes.
    """
    left = list(tasks)  # no set: its order would be another one in each process
    while left:
        for task in left:
            task.cancel()
        done, _ = await asyncio.wait(left, timeout=_AGAIN_S)
        for task in done:
            _ = task.cancelled() or task.exception()  # otherwise asyncio logs that it was never retrieved
        left = [task for task in left if task not in done]


class Afterwards:
    """Work that completes even if its caller is cancelled, or has no time to wait for it."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()

    async def do(self, work: Coroutine[Any, Any, None], error: BaseException | None) -> None:
        """Run cleanup after an error and wait for it, unless Redis is unavailable: a second call would fail, too."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        if not is_outage(error):
            await asyncio.shield(task)
