"""Goes over all keys of a namespace and has each looked at, in pages, while all goes on.

What is looked at is looked at by a script, as of one moment: a job that moves meanwhile is no false alarm.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from workron.connection import Connection
from workron.doctor.inspector import Inspector, bytes_of, text_of
from workron.doctor.scheme import Shape, shape_of
from workron.errors import StoreRefused
from workron.keys import Keys

PAGE: Final = 1000
MANY_EDGES: Final = 10
"""Of a job with more, edges are looked at in pages; of one with fewer, together with the job."""


class Walk:
    """One pass over all keys. `keys` is how many there were, `jobs` how many of them are jobs."""

    def __init__(self, connection: Connection, keys: Keys, inspector: Inspector) -> None:
        self._connection = connection
        self._keys = keys
        self._inspector = inspector
        self.keys = 0
        self.jobs = 0
        self.counted: set[str] = set()
        """Hashes of counts: of queues, workflows, arrays and concurrency keys; without the prefix."""
        self.long_lists: list[str] = []
        """Lists of pending jobs that are too long to be searched for each of them."""

    async def run(self) -> None:
        async for names in self._pages():
            self.keys += len(names)
            await self._look_at(names)
        await self._inspector.ask("quarantined", await self._quarantined())

    async def _pages(self) -> AsyncIterator[list[str]]:
        prefix, cursor = self._keys.prefix, b"0"
        while True:
            cursor, page = await self._connection.call("SCAN", cursor, "MATCH", f"{prefix}*", "COUNT", PAGE)
            yield [text_of(name).removeprefix(prefix) for name in page]
            if int(cursor) == 0:
                return

    async def _look_at(self, names: Sequence[str]) -> None:
        types = await self._connection.pipeline([("TYPE", self._key(name)) for name in names])
        asks: dict[str, list[str]] = defaultdict(list)
        for name, kind in zip(names, types, strict=True):
            if isinstance(kind, Exception):
                raise StoreRefused(f"Redis refuses to tell the type of a key: {kind}", retry_after_s=5.0)
            is_type = kind.decode()
            shape = shape_of(name, is_type)
            if is_type == "none":
                continue
            if shape is None:
                self._inspector.add("foreign", name, f"a {is_type}")
            elif shape.type and shape.type != is_type:
                asks["type"].append(f"{shape.type} {name}")
            else:
                await self._note(name, shape, asks)
        for what, items in asks.items():
            await self._inspector.ask(what, items)

    async def _note(self, name: str, shape: Shape, asks: dict[str, list[str]]) -> None:
        match = shape.pattern.fullmatch(name)
        parts = match.groupdict() if match else {}
        for what in shape.asks:
            asks[what].append(parts["item"])
        self.jobs += "job" in shape.asks
        if shape.lasts_ms:
            asks["lasting"].append(f"{shape.lasts_ms} {name}")
        if "counts" in parts:
            self.counted.add(parts["counts"])
        if shape.members:
            await self._members(name, shape.members, parts)
        if "child" in parts:
            await self._edges(name, parts["child"])
        if "pending" in parts and await self._connection.call("LLEN", self._key(name)) > PAGE:
            self.long_lists.append(name)

    async def _members(self, name: str, what: str, parts: Mapping[str, str]) -> None:
        """Have each member of a sorted set looked at, as the script takes them: see `lua/lib/leftovers.lua`."""
        async for page in self._scan("ZSCAN", name):
            if what == "member":
                items = [f"{parts['item']} {member}" for member, _ in page]
            else:
                about = [parts[part] for part in ("queue", "key") if part in parts]
                items = [" ".join([member, *about]) for member, _ in page]
            await self._inspector.ask(what, items)

    async def _edges(self, name: str, child: str) -> None:
        """Have the edges of a job with many of them looked at."""
        if await self._connection.call("HLEN", self._key(name)) > MANY_EDGES:
            async for page in self._scan("HSCAN", name):
                await self._inspector.ask("edge", [f"{parent} {state} {child}" for parent, state in page])

    async def _scan(self, command: str, name: str) -> AsyncIterator[list[tuple[str, str]]]:
        cursor: Any = b"0"
        while True:
            cursor, page = await self._connection.call(command, self._key(name), cursor, "COUNT", PAGE)
            texts = [text_of(one) if isinstance(one, bytes) else str(one) for one in page]
            yield list(zip(texts[::2], texts[1::2], strict=True))
            if int(cursor) == 0:
                return

    async def _quarantined(self) -> list[str]:
        return sorted(map(text_of, await self._connection.call("SMEMBERS", self._keys.quarantine)))

    def _key(self, name: str) -> bytes:
        return bytes_of(self._keys.prefix + name)
