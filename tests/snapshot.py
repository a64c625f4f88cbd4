"""A copy of a namespace, read in a few round trips, which answers reads as the server would.

An audit asks a hundred small questions; over a connection, each of them would cost more than the answer.
"""

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

from redis.asyncio import Redis

MOST_KEYS: Final = 1000
"""Keys that are read in one round trip."""

_READS: Final[dict[bytes, Callable[[Any, bytes], Any]]] = {
    b"hash": lambda pipeline, key: pipeline.hgetall(key),
    b"zset": lambda pipeline, key: pipeline.zrange(key, 0, -1, withscores=True),
    b"list": lambda pipeline, key: pipeline.lrange(key, 0, -1),
    b"set": lambda pipeline, key: pipeline.smembers(key),
}


class Snapshot:
    """The hashes, sets and lists of a namespace as they were; what else there is, the server is asked for."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self._kinds: dict[bytes, bytes] = {}
        self._values: dict[bytes, Any] = {}

    @classmethod
    async def of(cls, client: Redis, prefix: str) -> "Snapshot":
        """Read all keys with this prefix."""
        snapshot = cls(client)
        names = sorted({name async for name in client.scan_iter(f"{prefix}*", count=1000)})
        for start in range(0, len(names), MOST_KEYS):
            await snapshot._read(names[start : start + MOST_KEYS])
        return snapshot

    async def _read(self, names: list[bytes]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for name in names:
            pipeline.type(name)
        kinds = {name: kind for name, kind in zip(names, await pipeline.execute(), strict=True) if kind != b"none"}
        self._kinds |= kinds
        read = [name for name, kind in kinds.items() if kind in _READS]
        for name in read:
            _READS[kinds[name]](pipeline, name)
        self._values |= zip(read, await pipeline.execute(), strict=True)

    def _value(self, key: str | bytes, kind: bytes) -> Any:
        name = key.encode() if isinstance(key, str) else key
        found = self._kinds.get(name)
        if found is None:
            return None
        assert found == kind, f"{name!r} is a {found.decode()}, not a {kind.decode()}"
        return self._values[name]

    async def scan_iter(self, pattern: str, count: int = 0) -> AsyncIterator[bytes]:
        """Yield the keys with a prefix: `pattern` without its star."""
        prefix = pattern.removesuffix("*").encode()
        for name in [name for name in self._kinds if name.startswith(prefix)]:
            yield name

    async def zscan_iter(self, key: str, pattern: str) -> AsyncIterator[tuple[bytes, float]]:
        for member, score in await self.zrange(key, 0, -1, withscores=True):
            if member.startswith(pattern.removesuffix("*").encode()):
                yield member, score

    async def exists(self, key: str) -> bool:
        return key.encode() in self._kinds

    async def hgetall(self, key: str) -> dict[bytes, bytes]:
        return dict(self._value(key, b"hash") or {})

    async def hget(self, key: str, field: str) -> bytes | None:
        return (await self.hgetall(key)).get(field.encode())

    async def lrange(self, key: str, first: int, last: int) -> list[bytes]:
        assert (first, last) == (0, -1)
        return list(self._value(key, b"list") or [])

    async def llen(self, key: str | bytes) -> int:
        return len(self._value(key, b"list") or [])

    async def lpos(self, key: str, value: str) -> int | None:
        values = await self.lrange(key, 0, -1)
        return values.index(value.encode()) if value.encode() in values else None

    async def smembers(self, key: str) -> set[bytes]:
        return set(self._value(key, b"set") or ())

    async def scard(self, key: str) -> int:
        return len(await self.smembers(key))

    async def zrange(self, key: str, first: int, last: int, *, withscores: bool = False) -> list[Any]:
        assert (first, last) == (0, -1)
        pairs = self._value(key, b"zset") or []
        return [(member, score) if withscores else member for member, score in pairs]

    async def zcard(self, key: str) -> int:
        return len(self._value(key, b"zset") or [])

    async def zscore(self, key: str, member: str) -> float | None:
        return dict(await self.zrange(key, 0, -1, withscores=True)).get(member.encode())

    async def get(self, key: str | bytes) -> bytes | None:
        name = key.encode() if isinstance(key, str) else key
        found: bytes | None = await self._client.get(name) if self._kinds.get(name) == b"string" else None
        return found

    async def ttl(self, key: str | bytes) -> int:
        return int(await self._client.ttl(key))

    async def pttl(self, key: str | bytes) -> int:
        return int(await self._client.pttl(key))

    async def time(self) -> Any:
        return await self._client.time()

    def pipeline(self, *, transaction: bool) -> "Pipeline":
        assert not transaction
        return Pipeline(self)


class Pipeline:
    """Reads that are answered together."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._asked: list[Coroutine[Any, Any, Any]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self._asked.append(getattr(self._snapshot, name)(*arguments))

    async def execute(self) -> list[Any]:
        asked, self._asked = self._asked, []
        return [await read for read in asked]
