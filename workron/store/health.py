"""The state of the whole system, as known to Redis."""

from dataclasses import dataclass
from typing import Final

from workron.errors import StoreFull, is_outage
from workron.redis.connection import Connection
from workron.redis.keys import Keys
from workron.redis.server_info import ServerInfo, server_info
from workron.times import redis_ms

SCHEMA: Final = 2
"""Version of the data in Redis."""


@dataclass(frozen=True, slots=True)
class Health:
    """The state of the whole system, as known to Redis."""

    server: ServerInfo
    last_pass_age_ms: int | None
    running: int
    due: int
    quarantined: int
    rollbacks: int
    rolled_back_at_ms: int | None
    """How often Redis has lost a part of its history, and when last (see `lua/lib/history.lua`)."""
    refusal: Exception | None = None
    """Why Redis accepts no writes, or no new work (StoreFull), at present."""
    rebuilding: bool = False
    """Whether `workron doctor --rebuild` holds up all other calls."""


async def refusal_of(connection: Connection, keys: Keys) -> Exception | None:
    """Return why Redis accepts no write, by one that changes nothing: the namespace is marked already."""
    return await connection.refusal("HSETNX", keys.meta, "schema", SCHEMA)


async def read_health(connection: Connection, keys: Keys) -> Health:
    refusal = await refusal_of(connection, keys)
    server = await server_info(connection)
    about, now, running, due, quarantined = await connection.pipeline(
        [
            ("HMGET", keys.meta, "last_pass", "rollbacks", "rolled_back_at", "rebuilding_until"),
            ("TIME",),
            ("ZCARD", keys.leases),
            ("ZCARD", keys.due),
            ("SCARD", keys.quarantine),
        ]
    )
    last_pass, rollbacks, rolled_back_at, rebuilding_until = about
    now_ms = redis_ms(now)
    return Health(
        server,
        last_pass_age_ms=None if last_pass is None else now_ms - int(last_pass),
        running=running,
        due=due,
        quarantined=quarantined,
        rollbacks=int(rollbacks or 0),
        rolled_back_at_ms=None if rolled_back_at is None else int(rolled_back_at),
        refusal=refusal if isinstance(refusal, StoreFull) or is_outage(refusal) else None,
        rebuilding=now_ms < int(rebuilding_until or 0),
    )
