"""API keys, and the record of what was done with them."""

from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """What a key is good for. `admin` includes the others."""

    READ = "read"
    SUBMIT = "submit"
    WORK = "work"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key to be made; `queues` None: all, `ttl_ms` None: for ever."""

    name: str
    scopes: frozenset[Scope]
    queues: frozenset[str] | None = None
    ttl_ms: int | None = None


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """What is stored of a key: not the key itself, but its SHA-256 in hex."""

    id: str
    name: str
    scopes: frozenset[Scope]
    queues: frozenset[str] | None
    digest: str
    created_at_ms: int
    expires_at_ms: int | None
    expired: bool
    """By the clock of Redis, when it was read."""
    left_ms: int | None
    """Until it expires; None: never."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One request that changed something, or was refused: who, what, to what, and how it was answered."""

    id: str
    """Place in the record."""
    at_ms: int
    key: str
    """Id of the key; `master`, `none` (nobody needs one), or `job <id>`."""
    name: str
    action: str
    target: str
    status: int
    """Of HTTP; 0: the client had gone before it was answered."""
    address: str


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Entries, the newest first."""

    entries: tuple[AuditEntry, ...]
    next_cursor: str | None
