"""A pool of connections for reads, so that a slow or large read does not block other calls.

Pages, documents and output are not read on the lane of claims, results and submissions
(`connection.py`). The pool is limited, and a read without a free connection is rejected: another concurrent page would
only make all of them slower, and use memory.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from workron.errors import TooManyReads
from workron.redis.connection import Connection

TURNS: Final = 8


class Reads:
    """Maximum of concurrent reads; the connections are reused."""

    def __init__(self, connection: Connection, turns: int = TURNS, *, wait_s: float | None = None) -> None:
        self._connection = connection
        self._turns = asyncio.Semaphore(turns)
        self._wait_s = connection.budget_s if wait_s is None else wait_s
        self._made: list[Connection] = []
        self._free: list[Connection] = []

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Connection]:
        """Provide a connection for a read; raise TooManyReads if none is free in time.

        Afterwards replies of an abandoned read are discarded on that connection.
        """
        began_s = time.monotonic()
        await self._wait()
        try:
            connection = self._free.pop() if self._free else self._another()
            try:
                if connection is not self._connection:
                    connection.waited_s = time.monotonic() - began_s
                yield connection
            finally:
                self._free.append(connection)
                if connection is not self._connection:
                    connection.rest()
        finally:
            self._turns.release()

    async def _wait(self) -> None:
        if not self._turns.locked():
            await self._turns.acquire()
            return
        try:
            async with asyncio.timeout(self._wait_s):
                await self._turns.acquire()
        except TimeoutError:
            raise TooManyReads from None

    def _another(self) -> Connection:
        made = self._connection.another()
        if made is not self._connection:
            self._made.append(made)
        return made

    async def aclose(self) -> None:
        """Close the pool's connections; the owner closes the original one."""
        for connection in self._made:
            await connection.leave()
