"""A TCP proxy of ours that can be told to carry connections badly: late, not at all, or only half."""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress

from tests.ports import free_port

CHUNK = 65536
CONNECT_S = 1.0


class Link:
    """One connection through the proxy, both of its ends."""

    def __init__(self, proxy: "Proxy", client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self.stuck = False
        """Nothing passes any more, and neither end is told: as after a cable was pulled."""
        self.losing = False
        """The next reply is lost, and the connection with it; the server has done what was asked."""

    async def carry(self, requests: asyncio.StreamReader, replies: asyncio.StreamReader) -> None:
        """Carry both ways until either end closes."""
        ways = [asyncio.create_task(self._requests(requests)), asyncio.create_task(self._replies(replies))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.cut()
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _requests(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(CHUNK):
            if not self.stuck:
                self._server.write(data)
                await self._server.drain()

    async def _replies(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(CHUNK):
            if self._proxy.delay_s:
                await asyncio.sleep(self._proxy.delay_s)
            if self.losing:
                return
            if not self.stuck:
                self._client.write(data)
                await self._client.drain()
        if self.stuck:  # the client must not see that the server has closed it
            await asyncio.Event().wait()

    def cut(self) -> None:
        for end in (self._client, self._server):
            end.transport.abort()


class Proxy:
    """Listens on a port of its own, and carries to whichever of the targets answers, in turn."""

    def __init__(self, *targets: int) -> None:
        self.port = free_port()
        self.delay_s = 0.0
        """How late replies are."""
        self._targets = targets
        self._turn = 0
        self._links: set[Link] = set()
        self._carrying: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def aclose(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._carrying):
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    def cut(self, chance: random.Random, share: float = 0.5) -> None:
        """Reset some connections."""
        for link in self._some(chance, share):
            link.cut()

    def half_open(self, chance: random.Random, share: float = 0.5) -> None:
        """Let nothing through some of the connections any more, without closing them."""
        for link in self._some(chance, share):
            link.stuck = True

    def lose_replies(self, chance: random.Random, share: float = 0.5) -> None:
        """Lose the next reply on some of the connections, and those connections with it."""
        for link in self._some(chance, share):
            link.losing = True

    def _some(self, chance: random.Random, share: float) -> Sequence[Link]:
        return [link for link in self._links if chance.random() < share]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._carrying.add(task)
        try:
            await self._carry(reader, writer)
        except (OSError, asyncio.CancelledError):  # a task of a server must not end with the latter
            writer.transport.abort()
        finally:
            self._carrying.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = await self._connect()
        if ends is None:
            writer.transport.abort()
            return
        link = Link(self, writer, ends[1])
        self._links.add(link)
        try:
            await link.carry(reader, ends[0])
        finally:
            self._links.discard(link)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for _ in self._targets:
            self._turn += 1
            port = self._targets[self._turn % len(self._targets)]
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_S):
                    return await asyncio.open_connection("127.0.0.1", port)
        return None
