"""API keys: create, revoke, list and look up.

    wk1.<id>.<256 random bits, base64url>

The text has the id, so that one read finds a key; only its SHA-256 is stored, so that it can't be shown again.
"""

import hashlib
import hmac
import secrets
from typing import Any, Final

from workron import ids
from workron.errors import Conflict, NotFound
from workron.models import KeyRecord, NewKey, Scope
from workron.redis.connection import Connection
from workron.redis.keys import Keys
from workron.redis.scripts import Arg, Scripts, UnknownReply
from workron.store import decode
from workron.store.decode import Row
from workron.times import redis_ms

_PREFIX: Final = "wk1"
_SECRET_BYTES: Final = 32
_LONGEST: Final = 200
MOST_KEYS: Final = 1000
KEPT_MS: Final = 30 * 24 * 3600 * 1000
"""How long an expired key stays listed."""


class ApiKeys:
    """The API keys of one namespace."""

    def __init__(self, connection: Connection, keys: Keys, scripts: Scripts) -> None:
        self._connection = connection
        self._keys = keys
        self._scripts = scripts

    async def create(self, new: NewKey) -> tuple[KeyRecord, str]:
        """Create a key; return its record, and the key itself, which is stored nowhere."""
        key_id = ids.new_id()
        text = f"{_PREFIX}.{key_id}.{secrets.token_urlsafe(_SECRET_BYTES)}"
        ttl: Arg = "" if new.ttl_ms is None else new.ttl_ms
        match await self._scripts.key_create(key_id, new.name, ttl, MOST_KEYS, KEPT_MS, _fields(new, text)):
            case [b"TAKEN"]:
                raise Conflict(f"there is a key named {new.name}: revoke it first, or choose another name")
            case [b"MANY"]:
                raise Conflict(f"there are {MOST_KEYS:,} keys: revoke some first")
            case [b"GRANTED"]:
                return await self.get(key_id), text
            case reply:
                raise UnknownReply("key_create", reply)

    async def revoke(self, key_id: str) -> None:
        if (await self._scripts.key_revoke(key_id))[0] == b"UNKNOWN":
            raise NotFound("key", key_id)

    async def get(self, key_id: str) -> KeyRecord:
        found = await self.find(key_id)
        if found is None:
            raise NotFound("key", key_id)
        return found

    async def find(self, key_id: str) -> KeyRecord | None:
        """Return the record of a key, if there is one, in one round trip."""
        reply, time = await self._connection.each([("HGETALL", self._keys.api_key(key_id)), ("TIME",)])
        return _record(key_id, reply, redis_ms(time))

    async def list(self) -> list[KeyRecord]:
        """Return all keys in order of creation, including recently expired ones."""
        found = await self._connection.call("ZRANGE", self._keys.api_keys, 0, -1)
        names = sorted(one.decode() for one in found)
        *rows, time = await self._connection.each(
            [*(("HGETALL", self._keys.api_key(name)) for name in names), ("TIME",)]
        )
        records = [_record(name, row, redis_ms(time)) for name, row in zip(names, rows, strict=True)]
        return [record for record in records if record is not None]


def id_in(text: str) -> str | None:
    """Return the id in a text if it has the form of a key."""
    if len(text) > _LONGEST or not text.startswith(f"{_PREFIX}."):
        return None
    parts = text.split(".")
    return parts[1] if len(parts) == 3 and ids.is_id(parts[1]) else None


def is_of(record: KeyRecord, text: str) -> bool:
    """Return whether the text is the key, in constant time."""
    return hmac.compare_digest(_digest(text), record.digest)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _fields(new: NewKey, text: str) -> list[Arg]:
    queues = [] if new.queues is None else ["queues", " ".join(sorted(new.queues))]
    return ["digest", _digest(text), "scopes", " ".join(sorted(new.scopes)), *queues]


def _record(key_id: str, reply: Any, now_ms: int) -> KeyRecord | None:
    """Return the key of a hash; None if there is none or it can't be read: then the key is invalid."""
    row: Row = {} if isinstance(reply, Exception) else decode.row(reply)
    try:
        expires_at_ms = decode.number(row.get("expires_at"))
        left_ms = None if expires_at_ms is None else expires_at_ms - now_ms
        return KeyRecord(
            id=key_id,
            name=row["name"].decode("utf-8", "replace"),
            scopes=frozenset(Scope(scope) for scope in row["scopes"].decode().split()),
            queues=frozenset(row["queues"].decode().split()) if "queues" in row else None,
            digest=row["digest"].decode("ascii"),
            created_at_ms=int(row["created_at"]),
            expires_at_ms=expires_at_ms,
            expired=left_ms is not None and left_ms <= 0,
            left_ms=left_ms,
        )
    except (KeyError, ValueError):
        return None
