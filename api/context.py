"""What a route needs beside its request: the store, the settings, and whether the server is stopping."""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import Request

from workron import ids
from workron.settings import Settings
from workron.tasks import end

if TYPE_CHECKING:
    from workron.store import Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Context:
    """Made once per application; `stopping` is set when the server is told to stop."""

    store: "Store"
    settings: Settings
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    started_s: float = field(default_factory=time.monotonic)
    instance: str = field(default_factory=ids.new_id)

    async def while_wanted(self, request: Request, work: Coroutine[Any, Any, T]) -> T | None:
        """Return what `work` returns; None, and `work` is given up, if the client leaves or the server stops first."""
        working = asyncio.create_task(work)
        others = (asyncio.create_task(self.stopping.wait()), asyncio.create_task(_client_left(request)))
        try:
            await asyncio.wait((working, *others), return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else None
        finally:
            await end((working, *others))


def context_of(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


async def _client_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
