"""Rounds over sorted sets of names, one page per pass: the work of a pass does not grow with the set."""

from typing import Final

from workron.redis.connection import Connection

PAGE: Final = 500
"""Maximum of names in one page."""


class Round:
    """Visits the names of a sorted set with scores 0 in turn, again and again."""

    def __init__(self, connection: Connection, key: str) -> None:
        self._connection = connection
        self._key = key
        self._behind = b""

    async def next(self, limit: int = PAGE) -> list[bytes]:
        """Return the next names; after the last one, the first."""
        start = b"(" + self._behind if self._behind else b"-"
        names: list[bytes] = await self._connection.call("ZRANGE", self._key, start, "+", "BYLEX", "LIMIT", 0, limit)
        self._behind = names[-1] if len(names) == limit else b""
        return names
