"""Logs an outage of the store: one line when it starts, one when it ends, even without requests."""

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
    """Tracks failures of store calls; from the first failure on it probes for the end of the outage."""

    def __init__(self, store: "Store", stopping: asyncio.Event) -> None:
        self._store = store
        self._stopping = stopping
        self._outage = Outage()
        self._watching: asyncio.Task[None] | None = None

    def failed(self, error: StoreUnavailable) -> None:
        """Record a failed call; a store that answers with an error is not unavailable."""
        if error.is_outage and (self._watching is None or self._watching.done()):
            self._outage.failed(error)
            self._watching = asyncio.create_task(self._watch())

    @contextmanager
    def outlasted(self) -> Iterator[None]:
        """Suppress and record the store's unavailability."""
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
