"""Writes the audit log: in the background, after the responses, in batches.

An entry is written within `_EVERY_S` of its response, at the latest when the server stops; a crashed process loses
its pending entries. While the store is unavailable they wait in memory, at most `_MOST_WAITING`.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from api.auth.callers import Asked
from api.store_outage import OutageWatch
from workron.errors import StoreUnavailable
from workron.runtime.logger import log
from workron.runtime.signals import happens
from workron.store.audit import MOST_AT_ONCE

if TYPE_CHECKING:
    from workron.store import Store

_EVERY_S: Final = 0.25
_AGAIN_S: Final = 1.0
_MOST_WAITING: Final = 10_000
_LONGEST: Final = 200
_MOST_TARGETS: Final = 10

Entry = tuple[float, Sequence[str | int]]
"""The time on this process's clock, and the other fields."""


class AuditWriter:
    """Buffers and writes entries; the store keeps `most` of them, none if it is 0."""

    def __init__(self, store: "Store", most: int, outages: OutageWatch) -> None:
        self._store = store
        self._most = most
        self._outages = outages
        self._waiting: deque[Entry] = deque(maxlen=_MOST_WAITING)
        self._writing: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._left_out = 0
        self._refused = False

    def append(self, asked: Asked, status: int, client: tuple[str, int] | None) -> None:
        """Queue the entry of a request with this response status; 0: no response."""
        if not self._most:
            return
        caller, shown = asked.caller, asked.targets[:_MOST_TARGETS]
        target = " ".join(target[:_LONGEST] for target in shown)
        if len(asked.targets) > len(shown):
            target += f" and {len(asked.targets) - len(shown)} more"
        words = (caller.id, caller.name, asked.action or "", target, status, client[0] if client else "")
        self._left_out += len(self._waiting) == _MOST_WAITING
        self._waiting.append((time.monotonic(), words))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_soon())

    async def _write_soon(self) -> None:
        pause_s = _EVERY_S
        while self._waiting:
            await happens(self._closing, within_s=pause_s)
            written = await self._write()
            if not written and self._closing.is_set():
                return
            many = len(self._waiting) >= MOST_AT_ONCE
            pause_s = _AGAIN_S if not written else 0.0 if many else _EVERY_S

    async def _write(self) -> bool:
        """Write the oldest entries; return False if they have to wait."""
        together = list(islice(self._waiting, MOST_AT_ONCE))
        now_s = time.monotonic()
        entries: list[Any] = [(int((now_s - at_s) * 1000), *words) for at_s, words in together]
        try:
            await self._store.audit.append(entries, self._most)
        except StoreUnavailable as error:
            self._outages.failed(error)
            if not self._refused and not error.is_outage:
                log.warning("audit log not writable", error=str(error))
                self._refused = True
            return False
        self._refused = False
        for entry in together:
            if self._waiting and self._waiting[0] is entry:  # else it was left out meanwhile
                self._waiting.popleft()
        if self._left_out:
            log.warning("audit entries lost", entries=self._left_out)
            self._left_out = 0
        return True

    async def aclose(self) -> None:
        """Write the remaining entries, if the store is available."""
        self._closing.set()
        if self._writing is not None:
            await self._writing
