"""The context of routes: the store, the settings, and whether the server is stopping."""

import asyncio
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.requests import Request

from api.auth.audit import AuditWriter
from api.auth.callers import confirm, left
from api.auth.keyring import Keyring
from api.store_outage import OutageWatch
from api.worker_calls.cancels import CancelBoard
from api.worker_calls.parking import Parking
from workron import ids
from workron.runtime.async_tools import end
from workron.settings import Settings

if TYPE_CHECKING:
    from workron.store import Store

T = TypeVar("T")


class Context:
    """Created once per application; `stopping` is set when the server begins to stop."""

    def __init__(self, store: "Store", settings: Settings, keyring: Keyring | None = None) -> None:
        self.keyring: Final = keyring
        """The API keys; None if no key is required."""
        self.store: Final = store
        self.settings: Final = settings
        self.stopping: Final = asyncio.Event()
        self.started_s: Final = time.monotonic()
        self.instance: Final = ids.new_id()
        self.outages: Final = OutageWatch(store, self.stopping)
        self.audit: Final = AuditWriter(store, settings.audit_entries, self.outages)
        self.parking: Final = Parking(store, self.instance, self.stopping, self.outages)
        self.cancels: Final = CancelBoard(self.parking.source, self.stopping, self.outages)

    async def aclose(self) -> None:
        """Stop all listeners of the store; the owner closes the store itself."""
        await self.cancels.aclose()
        await self.parking.aclose()
        await self.audit.aclose()
        await self.outages.aclose()

    async def while_wanted(self, request: Request, work: Coroutine[Any, Any, T]) -> T | None:
        """Return the result of `work`; cancel it and return None if the client disconnects or the server stops first.

        Raises Unauthorized if the client's key has been revoked or has expired by then.
        """
        working = asyncio.create_task(work)
        others = (asyncio.create_task(self.stopping.wait()), asyncio.create_task(client_left(request)))
        try:
            await asyncio.wait((working, *others), return_when=asyncio.FIRST_COMPLETED)
            result = working.result() if working.done() else None
            await confirm(request)
            return result
        finally:
            await end((working, *others))


def context_of(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


async def client_left(request: Request) -> None:
    """Return when the client has closed its connection."""
    await left(request.receive)
