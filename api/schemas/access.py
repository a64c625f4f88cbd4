"""API keys and the audit log, as the API returns them."""

from typing import Any, Literal

from api.schemas.base import Answer, Time, time_or_none
from workron.models import AuditEntry, KeyRecord, Scope
from workron.times import rfc3339


class ApiKey(Answer):
    """An API key."""

    id: str
    name: str
    scopes: list[Scope]
    queues: list[str] | None
    """Null: all queues."""
    state: Literal["active", "expired"]
    created_at: Time
    expires_at: Time | None


class MadeKey(ApiKey):
    key: str
    """The key itself; it is shown only once."""


class ApiKeyList(Answer):
    data: list[ApiKey]


class Entry(Answer):
    """An entry of the audit log: a request that changed something or was rejected."""

    id: str
    at: Time
    key: str
    """Id of the API key; `master`; `none` if no key is required; or `job ID` for a job's token."""
    key_name: str | None
    action: str
    """The `operationId`."""
    target: str | None
    """Names and ids of the affected objects, at most ten."""
    status: int | None
    """HTTP status of the response; null: the client had disconnected."""
    address: str | None
    """Address of the client."""


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
