"""Turns at reading, each on a connection of its own: a slow or large read is nobody else's outage.

What is read for people (pages, documents, output) has no part in the lane of claims, results and submissions
(`connection.py`). There are so many turns, and whoever waits for one in vain is told so: a further page at once would
only make all of them slower, and take its memory.
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
    """So many turns at a time; the connections are kept for the next ones."""

    def __init__(self, connection: Connection, turns: int = TURNS, *, wait_s: float | None = None) -> None:
        self._connection = connection
        self._turns = asyncio.Semaphore(turns)
        self._wait_s = connection.budget_s if wait_s is None else wait_s
        self._made: list[Connection] = []
        self._free: list[Connection] = []

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Connection]:
        """Give a connection to read on; TooManyReads if none is free in time.

        At the end nothing more is read on it: what the server still sends of an answer given up is thrown away there.
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
        """Close the connections; that on which the others were asked for is its owner's."""
        for connection in self._made:
            await connection.leave()
