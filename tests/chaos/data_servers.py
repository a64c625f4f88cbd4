"""Where the data are: one server, or several that take over from one another."""

import asyncio
from pathlib import Path
from typing import Final

from tests.chaos.node import Node
from tests.chaos.proxy import Proxy
from workron.redis.keys import Keys

NAMESPACE: Final = "default"


class Ground:
    """One server behind a proxy. Others add what they have more."""

    moves: bool = False
    """Whether the data can move to another server."""
    standstill_s: float = 4.0
    """How long the server may stand still without another one taking over."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes: list[Node] = []
        self.proxies: list[Proxy] = []
        self.url = ""
        """What the processes are given."""
        self.rollbacks: list[tuple[float, float]] = []
        """From when to when (s since the epoch) acknowledged jobs may not have come to the server that took over."""

    @property
    def primary(self) -> Node:
        """The server that has the data now."""
        return self.nodes[0]

    async def start(self) -> None:
        self.nodes = [Node(self.folder / "redis")]
        await self.nodes[0].start()
        self.proxies = [Proxy(self.nodes[0].port)]
        await self.proxies[0].start()
        self.url = f"redis://127.0.0.1:{self.proxies[0].port}/0"

    async def settled(self) -> None:
        """Return when the servers agree again on who has the data."""

    async def move(self, lasts_s: float = 0.0) -> None:
        """Let another server take over; where that takes time, for so long."""
        raise RuntimeError("there is one server only: nothing is to be moved where `moves` is not set")

    async def aclose(self) -> None:
        await asyncio.gather(*(proxy.aclose() for proxy in self.proxies))
        await asyncio.gather(*(node.aclose() for node in self.nodes))


KEYS: Final = Keys(NAMESPACE)
