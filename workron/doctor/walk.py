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
LONG_TEXT: Final = 400
LONGEST_TEXT: Final = 4_000_000
"""Bytes of the field that names them: see SHORT_TEXT in `lua/lib/waits.lua`; what is longer is no list of ours."""


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
        self.workflows: list[str] = []
        """What is to be asked about them when the counts are right."""
        self.schedules: list[str] = []
        self.long_lists: list[str] = []
        """Lists of pending jobs that are too long to be searched for each of them."""

    async def run(self) -> None:
        async for names in self._pages():
            self.keys += len(names)
            await self._look_at(names)

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
        await self._edges(asks.pop("child", []))
        self.workflows += asks.pop("workflow", [])
        self.schedules += asks.get("schedule", [])
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
            await self._members(name, shape, parts)
        if "child" in parts:
            asks["child"].append(parts["child"])
        if "pending" in parts and await self._connection.call("LLEN", self._key(name)) > PAGE:
            self.long_lists.append(name)

    async def _members(self, name: str, shape: Shape, parts: Mapping[str, str]) -> None:
        """Have each member of a set looked at, as the script takes them: see `lua/lib/leftovers.lua`."""
        of = ("item",) if shape.members == "member" else ("queue", "key", "array")
        about = [parts[part] for part in of if part in parts]
        async for page in self._scan("SSCAN" if shape.type == "set" else "ZSCAN", self._key(name)):
            await self._inspector.ask(shape.members, [" ".join([*about, member]) for member in page])

    async def _edges(self, children: Sequence[str]) -> None:
        """Have the edges of jobs with many of them looked at: those not satisfied, and those that the job names."""
        ask_lengths: list[tuple[str, ...]] = [("HLEN", self._keys.parents(child)) for child in children]
        ask_lengths += [("HSTRLEN", self._keys.job(child), "depends_on") for child in children]
        lengths = await self._connection.each(ask_lengths) if children else []
        half = len(children)
        for child, many, named in zip(children, lengths[:half], lengths[half:], strict=True):
            if isinstance(many, int) and many > MANY_EDGES:
                async for page in self._scan("HSCAN", self._keys.parents(child)):
                    await self._inspector.ask("edge", [f"{child} - {parent}" for parent in page])
            if isinstance(named, int) and LONG_TEXT < named <= LONGEST_TEXT:
                text = text_of(await self._connection.call("HGET", self._keys.job(child), "depends_on") or b"")
                edges = (edge.partition(":") for edge in text.split())
                await self._inspector.ask("edge", [f"{child} {when or 'done'} {parent}" for parent, _, when in edges])

    async def _scan(self, command: str, key: str | bytes) -> AsyncIterator[list[str]]:
        """Yield the members of a set, or the fields of a hash, in pages."""
        cursor: Any = b"0"
        step = 1 if command == "SSCAN" else 2
        while True:
            cursor, page = await self._connection.call(command, key, cursor, "COUNT", PAGE)
            yield [text_of(one) for one in page[::step]]
            if int(cursor) == 0:
                return

    def _key(self, name: str) -> bytes:
        return bytes_of(self._keys.prefix + name)
