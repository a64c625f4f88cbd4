"""What the Redis server says of itself, and whether it can keep the promise."""

from dataclasses import dataclass
from typing import Any, Final

from workron.errors import StoreUnsuitable
from workron.lines import lines_of
from workron.redis.connection import Connection

OLDEST: Final = (7, 0)
"""Oldest Redis that is supported: LMPOP and script flags came with 7.0. Any Valkey has both."""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What the Redis server says of itself; None where it is not allowed to say."""

    product: str
    version: str
    appendonly: bool | None
    appendfsync: str | None
    maxmemory_policy: str | None
    used_memory: int | None
    maxmemory: int | None


async def server_info(connection: Connection) -> ServerInfo:
    """Ask INFO and CONFIG; an ACL may deny both, then the fields are None."""
    info, config = await connection.each([("INFO",), ("CONFIG", "GET", "append*")])
    settings = _config(config)
    known = _parse_info(info)
    product = "Valkey" if known.get("server_name") == "valkey" else "Redis"
    version = known.get("valkey_version") or known.get("redis_version") or ""
    policy = known.get("maxmemory_policy")
    appendonly = settings.get("appendonly")
    return ServerInfo(
        product=product,
        version=version,
        appendonly=None if appendonly is None else appendonly == "yes",
        appendfsync=settings.get("appendfsync"),
        maxmemory_policy=policy,
        used_memory=_number(known.get("used_memory")),
        maxmemory=_number(known.get("maxmemory")),
    )


def _parse_info(reply: Any) -> dict[str, str]:
    """Return the fields of INFO; none where it was refused."""
    if not isinstance(reply, bytes):
        return {}
    pairs = (line.partition(":") for line in lines_of(reply.decode("utf-8", "replace")))
    return {name: value for name, colon, value in pairs if colon}


def _number(value: str | None) -> int | None:
    return int(value) if value is not None else None


def _config(reply: Any) -> dict[str, str]:
    if isinstance(reply, Exception) or not reply:
        return {}
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)

    def plain(value: Any) -> str:
        return value.decode() if isinstance(value, bytes) else str(value)

    return {plain(name): plain(value) for name, value in pairs}


def check(info: ServerInfo, *, allow_eviction: bool) -> None:
    """Raise StoreUnsuitable where jobs could not be kept safely."""
    if info.product == "Redis" and info.version:
        version = tuple(int(part) for part in info.version.split(".")[:2])
        if version < OLDEST:
            raise StoreUnsuitable(f"Redis {info.version} is too old; Workron needs Redis 7.0 or Valkey")
    if info.maxmemory_policy not in (None, "noeviction") and not allow_eviction:
        raise StoreUnsuitable(
            f"maxmemory-policy is {info.maxmemory_policy}: the server may throw jobs away; "
            "set it to noeviction, or start with --allow-eviction"
        )


def excess(info: ServerInfo, share: float) -> float | None:
    """Return the part of the used memory that is beyond `share` of maxmemory, 0..1; None if it is not known."""
    if info.used_memory is None or info.maxmemory is None:
        return None
    if not info.maxmemory or not info.used_memory:
        return 0.0
    return max(0.0, 1 - share * info.maxmemory / info.used_memory)
