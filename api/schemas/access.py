"""API keys and the record, as the API answers them."""

from typing import Any, Literal

from api.schemas.base import Answer, Time, time_or_none
from workron.models import AuditEntry, KeyRecord, Scope
from workron.times import rfc3339


class ApiKey(Answer):
    """What is known of a key."""

    id: str
    name: str
    scopes: list[Scope]
    queues: list[str] | None
    """Null: all."""
    state: Literal["active", "expired"]
    created_at: Time
    expires_at: Time | None


class MadeKey(ApiKey):
    key: str
    """The key itself: this is the only time that it is shown."""


class ApiKeyList(Answer):
    data: list[ApiKey]


class Entry(Answer):
    """A request that changed something, or was refused."""

    id: str
    at: Time
    key: str
    """Id of the key: `master`, `none` if no key is demanded, or `job ID` for the token of a job."""
    key_name: str | None
    action: str
    """The `operationId`."""
    target: str | None
    """What it was done to: names and ids, the first ten."""
    status: int | None
    """HTTP status of the answer; null: the client had gone."""
    address: str | None
    """From where it came."""


class EntryPage(Answer):
    data: list[Entry]
    next_cursor: str | None


def key_document(record: KeyRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "name": record.name,
        "scopes": [scope.value for scope in Scope if scope in record.scopes],
        "queues": None if record.queues is None else sorted(record.queues),
        "state": "expired" if record.expired else "active",
        "created_at": rfc3339(record.created_at_ms),
        "expires_at": time_or_none(record.expires_at_ms),
    }


def entry_document(entry: AuditEntry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "at": rfc3339(entry.at_ms),
        "key": entry.key,
        "key_name": entry.name or None,
        "action": entry.action,
        "target": entry.target or None,
        "status": entry.status or None,
        "address": entry.address or None,
    }
