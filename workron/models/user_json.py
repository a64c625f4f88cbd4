"""JSON of users: results and metadata. Bounded, so that it can be embedded in any document."""

import math
from typing import Any, Final

import orjson

from workron.strict_json import repeated_key

MAX_RESULT: Final = 64 * 1024
"""Maximum size of a job's result, bytes."""
MAX_METADATA: Final = 16 * 1024
"""Maximum size of a job's metadata, bytes."""
_DEEPEST: Final = 100
"""Maximum nesting: some JSON encoders support 250 levels, and documents add some more."""


def write(value: Any, limit: int) -> bytes:
    """Return the JSON of a value; raise ValueError, with a predicate as message, if it can't be stored."""
    if _depth(value) > _DEEPEST:
        raise ValueError(f"is nested more than {_DEEPEST} levels deep")
    try:
        data = orjson.dumps(value)
    except TypeError:  # half a surrogate pair, a number of more than 64 bits
        data = b""
    if not data or (b"null" in data and _has_no_number(value)):
        raise ValueError("can't be stored as JSON: it has numbers or strings that are out of range")
    if len(data) > limit:
        raise ValueError(f"is longer than {limit:,} bytes")
    return data


def check(data: bytes, limit: int) -> str | None:
    """Return the text as compact JSON, None if it is blank or null; raise ValueError like `write`."""
    if len(data) > limit:
        raise ValueError(f"is longer than {limit:,} bytes")
    if not data.strip():
        return None
    try:
        value = orjson.loads(data)
    except ValueError:
        raise ValueError("is not JSON") from None
    if (key := repeated_key(data)) is not None:
        raise ValueError(f"has the key {key!r} twice")
    return None if value is None else write(value, limit).decode()


def _depth(value: Any) -> int:
    level, depth = [value], 0
    while level := [item for one in level if isinstance(one, dict | list) for item in _items(one)]:
        depth += 1
        if depth > _DEEPEST:
            break
    return depth


def _has_no_number(value: Any) -> bool:
    """Return whether it contains NaN or Infinity: pydantic reads them, and 1e400, and orjson writes them as null."""
    level = [value]
    while level:
        if any(isinstance(one, float) and not math.isfinite(one) for one in level):
            return True
        level = [item for one in level if isinstance(one, dict | list) for item in _items(one)]
    return False


def _items(value: dict[str, Any] | list[Any]) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value
