"""An outage of the store as the API logs it: one line when it starts, one when it is over, asked for or not."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from workron.errors import StoreUnavailable
from workron.runtime.async_tools import end
from workron.runtime.outage import Outage
from workron.runtime.signals import happens

if TYPE_CHECKING:
    from workron.store import Store

_EVERY_S: Final = 0.5


class OutageWatch:
    """Told by whatever failed for the store's sake; from the first failure on it asks for the end by itself."""

    def __init__(self, store: "Store", stopping: asyncio.Event) -> None:
        self._store = store
        self._stopping = stopping
        self._outage = Outage()
        self._watching: asyncio.Task[None] | None = None

    def failed(self, error: StoreUnavailable) -> None:
        """Note that the store did not answer; one that answers with a refusal is not away."""
        if error.is_outage and (self._watching is None or self._watching.done()):
            self._outage.failed(error)
            self._watching = asyncio.create_task(self._watch())

    @contextmanager
    def outlasted(self) -> Iterator[None]:
        """Go on where the store does not answer, having noted it."""
        try:
            yield
        except StoreUnavailable as error:
            self.failed(error)

    async def aclose(self) -> None:
        await end([self._watching] if self._watching is not None else [])

    async def _watch(self) -> None:
        while not await happens(self._stopping, within_s=_EVERY_S):
            try:
                await self._store.ping()
            except StoreUnavailable as error:
                self._outage.failed(error)  # the first failure may have been an echo of the outage before
                continue
            self._outage.worked()
            return
