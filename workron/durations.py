"""Durations: seconds outside of the store, whole milliseconds inside; as text `0.1s`, `30s`, `5m`, `24h`, `7d`."""

import re
from typing import Any, Final, overload

_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")


@overload
def to_ms(seconds: float) -> int: ...
@overload
def to_ms(seconds: float | None) -> int | None: ...
def to_ms(seconds: float | None) -> int | None:
    """Return the milliseconds of a duration, at least 1 of a positive one; None of None."""
    if seconds is None:
        return None
    return max(1, round(seconds * 1000)) if seconds > 0 else 0


@overload
def to_seconds(ms: float) -> float: ...
@overload
def to_seconds(ms: float | None) -> float | None: ...
def to_seconds(ms: float | None) -> float | None:
    """Return the seconds of a duration; None of None."""
    return None if ms is None else ms / 1000


def parse_duration(value: Any) -> Any:
    """Return seconds for `0.1s`, `5m`, `24h` or a plain number; other types pass to pydantic unchanged."""
    if not isinstance(value, str):
        return value
    match = _DURATION.fullmatch(value.strip())
    if match is None:
        raise ValueError(f"{value!r} is not a duration; write it like 0.5s, 30s, 5m, 24h or 7d")
    return float(match[1]) * _UNIT_S[match[2] or "s"]


def format_duration(seconds: float) -> str:
    """Return the exact duration, in the largest unit that gives a whole number: `90s`, `24h`, `7d`."""
    for unit, least_s in (("d", 2 * _UNIT_S["d"]), ("h", _UNIT_S["h"]), ("m", _UNIT_S["m"])):
        if seconds >= least_s and seconds % _UNIT_S[unit] == 0:
            return f"{seconds / _UNIT_S[unit]:.0f}{unit}"
    return f"{f'{seconds:.6f}'.rstrip('0').rstrip('.')}s"


def readable(seconds: float) -> str:
    """Return the duration in at most two units: `0.3s`, `12s`, `3m 20s`, `2h 5m`, `24d 23h`."""
    if seconds < 10:
        return format_duration(round(seconds, 1))
    left = round(seconds)
    if left >= _UNIT_S["d"]:
        left = round(left / 3600) * 3600
    elif left >= _UNIT_S["h"]:
        left = round(left / 60) * 60
    found = []
    for unit in ("d", "h", "m", "s"):
        number, left = divmod(left, int(_UNIT_S[unit]))
        found += [f"{number}{unit}"] if number else []
    return " ".join(found[:2])
