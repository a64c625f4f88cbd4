"""JSON without duplicate keys: of two values of a key, parsers take one and drop the other in silence."""

import json
from collections.abc import Sequence
from typing import Any, Final


class _RepeatedError(Exception):
    pass


def repeated(pairs: Sequence[tuple[str, Any]]) -> str | None:
    """Return a key that occurs twice, if one does."""
    if len(dict(pairs)) == len(pairs):
        return None
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return key
        seen.add(key)
    return None


def repeated_key(text: bytes | str) -> str | None:
    """Return a key that an object in this JSON has twice, if one does. The text is valid, or refused elsewhere."""
    try:
        _DECODER.decode(text if isinstance(text, str) else text.decode())
    except _RepeatedError as error:
        return str(error)
    except (ValueError, RecursionError):
        pass
    return None


def _check(pairs: list[tuple[str, Any]]) -> None:
    if (key := repeated(pairs)) is not None:
        raise _RepeatedError(key)


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_check)
