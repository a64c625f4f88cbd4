"""Compares jobs with a filter, for filters without an index."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import orjson

from workron.models import DEFAULT_QUEUE, JobFilter
from workron.store import decode
from workron.store.decode import Row


def matches(row: Row, where: JobFilter) -> bool:
    """Return whether a job's hash matches the filter."""

    def same(name: str, wanted: str | None, default: str | None = None) -> bool:
        value = row.get(name)
        return wanted is None or (value.decode("utf-8", "replace") if value is not None else default) == wanted

    checks: tuple[Callable[[], bool], ...] = (
        lambda: same("status", where.status),
        lambda: same("queue", where.queue, DEFAULT_QUEUE),
        lambda: same("workflow", where.workflow),
        lambda: not where.fields or _has_fields(row, where.fields),
        lambda: not where.tags or _has_tags(row, where.tags),
        lambda: not where.metadata or _has_metadata(row, where.metadata),
    )
    return all(check() for check in checks)


def _has_fields(row: Row, wanted: Mapping[str, Any]) -> bool:
    with suppress(TypeError, ValueError):
        return all(decode.plain(row, name) == value for name, value in wanted.items())
    return False


def _has_tags(row: Row, tags: Sequence[str]) -> bool:
    with suppress(TypeError, ValueError):
        return set(tags) <= set(orjson.loads(row.get("tags", b"[]")))
    return False


def _has_metadata(row: Row, wanted: Mapping[str, str]) -> bool:
    with suppress(AttributeError, ValueError):
        metadata = orjson.loads(row.get("metadata", b"{}"))
        return all(key in metadata and _as_text(metadata[key]) == value for key, value in wanted.items())
    return False


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
