"""Patterns, limits and types of the fields of request bodies."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
)

from workron.durations import parse_duration
from workron.models.job_fields import MIB, NAME_PATTERN, NO_NUL, QUEUE_PATTERN
from workron.specs.documented import Documented

ID_PATTERN: Final = r"^[0-9A-Za-z]{22}$"
_ENV_NAME: Final = r"^[^=\x00]+$"
RFC3339: Final = r"^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+\-]\d\d:\d\d)$"

LONGEST_S: Final = 10 * 366 * 86_400
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_MS: Final = 253_000_000_000_000
"""A day in the year 9987: later times can't be written with a four-digit year in every time zone."""


def within_a_mib(text: str) -> str:
    # A character has at most four bytes: short texts need not be encoded to be measured.
    if len(text) * 4 > MIB and len(text.encode()) > MIB:
        raise ValueError(f"is longer than {MIB:,} bytes")
    return text


def _whole(number: Any) -> Any:
    """Accept 5.0 as 5: they are the same number in JSON, and some languages only write the former."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


Text = Annotated[str, StringConstraints(max_length=MIB, pattern=NO_NUL), AfterValidator(within_a_mib)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NAME_PATTERN)]
QueueName = Annotated[str, StringConstraints(pattern=QUEUE_PATTERN)]
EnvName = Annotated[str, StringConstraints(max_length=255, pattern=_ENV_NAME)]
Reference = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NO_NUL)]
or_with_a_point = BeforeValidator(_whole)


def _whole_below(most: int) -> str:
    """Return a pattern of the whole numbers from 1 to below `most`."""
    digits = str(most)
    shorter = [rf"[1-9][0-9]{{0,{len(digits) - 2}}}"] if len(digits) > 1 else []
    least = ["1", *"0" * len(digits)]
    same = [
        f"{digits[:at]}[{least[at]}-{int(digit) - 1}][0-9]{{{len(digits) - at - 1}}}"
        for at, digit in enumerate(digits)
        if digit > least[at]
    ]
    return "|".join([*shorter, *same])


def _length(unit: str, unit_ms: int) -> str:
    most = LONGEST_S * 1000 // unit_ms
    return rf"(({_whole_below(most)})(\.[0-9]{{1,3}})?|{most}|0\.[0-9]{{0,2}}[1-9]){unit}"


_UNITS: Final = "|".join(
    _length(*unit) for unit in (("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000))
)
_SOME_TIME: Final = f"^({_UNITS})$"
_ANY_TIME: Final = f"^({_UNITS}|0(ms|s|m|h|d))$"
"""A duration as text, at most the longest number of seconds."""
ANY_LENGTH: Final = (
    {"type": "number", "minimum": 0, "maximum": LONGEST_S},
    {"type": "string", "pattern": _ANY_TIME},
)
SOME_LENGTH: Final = (
    {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST_S},
    {"type": "string", "pattern": _SOME_TIME},
)


def seconds_of(text: str) -> float | None:
    """Return the seconds of a duration like `0.5s`, `30s`, `5m`, `24h`, `7d`; None if it is not one."""
    return float(parse_duration(text)) if re.fullmatch(_ANY_TIME, text) else None


def _seconds(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    seconds = seconds_of(value)
    if seconds is None:
        raise ValueError("is not a duration up to 3660d; write seconds, or like 0.5s, 30s, 5m, 24h, 7d")
    return seconds


_within_limits = Field(ge=0, le=LONGEST_S, allow_inf_nan=False)
Seconds = Annotated[float, BeforeValidator(_seconds), _within_limits, WithJsonSchema({"anyOf": [*ANY_LENGTH]})]
SomeSeconds = Annotated[
    float, BeforeValidator(_seconds), _within_limits, Field(gt=0), WithJsonSchema({"anyOf": [*SOME_LENGTH]})
]


class Body(Documented):
    model_config = ConfigDict(strict=True, frozen=True)


def fits(texts: Iterable[str]) -> None:
    if sum(map(len, texts)) > MIB:
        raise ValueError(f"is longer than {MIB:,} characters in total")


def epoch_ms(text: str) -> int:
    """Return the time as milliseconds since 1970, at least 1: for the store, 0 is none."""
    try:
        at_ms = (datetime.fromisoformat(text.upper()) - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        raise ValueError("has a date, a time or an offset that is out of range") from None
    if at_ms > _LATEST_MS:
        raise ValueError("is too far in the future")
    return max(1, at_ms)
