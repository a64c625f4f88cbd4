"""API keys and the audit log."""

from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """The scopes of a key. `admin` includes the others."""

    READ = "read"
    SUBMIT = "submit"
    WORK = "work"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class NewKey:
    """A new key; `queues` None: all, `ttl_ms` None: no expiry."""

    name: str
    scopes: frozenset[Scope]
    queues: frozenset[str] | None = None
    ttl_ms: int | None = None


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A stored key, with its SHA-256 in hex instead of the key itself."""

    id: str
    name: str
    scopes: frozenset[Scope]
    queues: frozenset[str] | None
    digest: str
    created_at_ms: int
    expires_at_ms: int | None
    expired: bool
    """Time of reading it, on Redis' clock."""
    left_ms: int | None
    """Remaining lifetime; None: no expiry."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An entry of the audit log: a request that changed something or was rejected."""

    id: str
    """Position in the audit log."""
    at_ms: int
    key: str
    """Id of the key; `master`, `none` (no key is required), or `job <id>`."""
    name: str
    action: str
    target: str
    status: int
    """HTTP status; 0: the client disconnected before the response."""
    address: str


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Entries, newest first."""

    entries: tuple[AuditEntry, ...]
    next_cursor: str | None
