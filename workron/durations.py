"""Durations as text: `0.1s`, `30s`, `5m`, `24h`, `7d` or plain seconds."""

import re
from typing import Any, Final

_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")


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
            return f"{seconds / _UNIT_S[unit]:g}{unit}"
    return f"{seconds:g}s"
