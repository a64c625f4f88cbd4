"""Cursors of listings as text: the position after a page. Clients can forge them."""

from typing import Any, Final

import orjson

from workron.errors import InvalidRequest

Place = list[Any]
_LARGEST: Final = 2**63


def write(place: Place) -> str:
    """Return the cursor of a position."""
    return orjson.dumps(place).hex()


def parse(cursor: str | None) -> Place | None:
    """Return the position of a cursor; raise InvalidRequest if it is invalid."""
    if cursor is None:
        return None
    try:
        place = orjson.loads(bytes.fromhex(cursor))
    except ValueError as error:
        raise InvalidRequest("invalid cursor", field="cursor") from error
    if not isinstance(place, list) or not place or not all(map(_is_part, place)):
        raise InvalidRequest("invalid cursor", field="cursor")
    return place


def scanned(part: Any) -> int:
    """Return a cursor of a scan in Redis; raise ValueError for an invalid number."""
    number = int(part or 0)
    if not 0 <= number < _LARGEST:
        raise ValueError("no cursor of a scan")
    return number


def _is_part(part: Any) -> bool:
    return isinstance(part, str) or (type(part) in (int, float) and abs(part) <= _LARGEST)
