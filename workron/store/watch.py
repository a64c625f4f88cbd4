"""Watches for events of jobs: the `events` stream, read on one connection, wakes all waiters."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from workron.durations import to_ms
from workron.errors import StoreUnavailable
from workron.redis.connection import BLOCK_S, Connection
from workron.redis.keys import Keys
from workron.runtime.async_tools import end
from workron.runtime.logger import log
from workron.runtime.signals import happens

RECHECK_S: Final = 5.0
"""Waiters check again after this time without an event: the stream is capped, a very late reader may miss one."""


class Watch:
    """Wakes waiters of jobs. Reads the stream only while there are waiters."""

    def __init__(self, connection: Connection, keys: Keys) -> None:
        self._connection = connection
        self._keys = keys
        self._waiters: defaultdict[str, dict[asyncio.Event, None]] = defaultdict(dict)
        """Waiters of each job, in order."""
        self._reader: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    @asynccontextmanager
    async def watch(self, job_id: str) -> AsyncIterator[asyncio.Event]:
        """Provide an event that is set on every event of the job. Read the job after entering."""
        signal = asyncio.Event()
        self._waiters[job_id][signal] = None
        try:
            if self._reader is None:
                self._ready.clear()
                self._reader = asyncio.create_task(self._read())
            await happens(self._ready, within_s=RECHECK_S)
            yield signal
        finally:
            del self._waiters[job_id][signal]
            if not self._waiters[job_id]:
                del self._waiters[job_id]
            if not self._waiters:
                await self.aclose()

    async def aclose(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            await end([reader])

    async def _read(self) -> None:
        while True:
            try:
                async with self._connection.own() as connection:
                    await self._follow(connection)
            except StoreUnavailable as error:
                log.debug("event watch interrupted", error=str(error))
                await asyncio.sleep(0.2)

    async def _follow(self, connection: Connection) -> None:
        newest = await connection.call("XREVRANGE", self._keys.events, "+", "-", "COUNT", 1)
        last = newest[0][0] if newest else b"0"
        self._ready.set()
        self._wake_all()  # events may have passed while the connection was away
        while True:
            reply = await connection.call(
                "XREAD", "COUNT", 100, "BLOCK", to_ms(BLOCK_S), "STREAMS", self._keys.events, last
            )
            for entry_id, fields in _entries(reply):
                last = entry_id
                self._tell(fields)

    def _tell(self, fields: list[bytes]) -> None:
        for ids in fields[1::2]:
            for job_id in ids.decode().split():
                for signal in self._waiters.get(job_id, ()):
                    signal.set()

    def _wake_all(self) -> None:
        for signals in self._waiters.values():
            for signal in signals:
                signal.set()


def _entries(reply: Any) -> list[tuple[bytes, list[bytes]]]:
    """Return the entries of an XREAD on one stream, in either protocol version."""
    if not reply:
        return []
    entries = next(iter(reply.values())) if isinstance(reply, Mapping) else reply[0][1]
    return [(entry_id, fields) for entry_id, fields in entries]
