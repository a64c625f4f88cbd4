"""The audit log: the stream `audit`, from which the oldest entries are removed."""

from collections.abc import Sequence
from typing import Any, Final

from workron.errors import InvalidRequest
from workron.models import AuditEntry, AuditPage
from workron.redis.keys import Keys
from workron.redis.read_pool import Reads
from workron.redis.scripts import Arg, Scripts
from workron.store import decode

MOST_AT_ONCE: Final = 200
"""Maximum of entries in one call: about a millisecond of work."""


class AuditLog:
    """The audit log of one namespace."""

    def __init__(self, keys: Keys, scripts: Scripts, reads: Reads) -> None:
        self._reads = reads
        self._keys = keys
        self._scripts = scripts

    async def append(self, entries: Sequence[Sequence[Arg]], most: int) -> None:
        """Append entries, see `lua/audit_append.lua`. After a lost reply a repeat may duplicate them."""
        for start in range(0, len(entries), MOST_AT_ONCE):
            await self._scripts.audit_append(
                most, [part for entry in entries[start : start + MOST_AT_ONCE] for part in entry]
            )

    async def page(self, limit: int, cursor: str | None) -> AuditPage:
        """Return entries, newest first; `cursor` is the id of the last entry of the previous page."""
        start = "+" if cursor is None else f"({_place(cursor)}"
        async with self._reads.turn() as connection:
            found = await connection.call("XREVRANGE", self._keys.audit, start, "-", "COUNT", limit + 1)
        entries = tuple(_entry(name.decode(), decode.row(fields)) for name, fields in found[:limit])
        return AuditPage(entries, entries[-1].id if len(found) > limit else None)


def _place(cursor: str) -> str:
    parts = cursor.split("-")
    numbers = len(parts) == 2 and all(part.isascii() and part.isdigit() and len(part) < 20 for part in parts)
    if not numbers or not any(map(int, parts)):  # behind 0-0 there is nothing: Redis refuses it
        raise InvalidRequest("invalid cursor", field="cursor")
    return cursor


def _entry(name: str, row: Any) -> AuditEntry:
    def text(field: str) -> str:
        return decode.text(row.get(field)) or ""

    return AuditEntry(
        id=name,
        at_ms=int(row.get("at", b"0")),
        key=text("key"),
        name=text("name"),
        action=text("action"),
        target=text("target"),
        status=int(row.get("status", b"0")),
        address=text("from"),
    )
