"""What the bodies of requests are made of: patterns, limits and types of their fields."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
)

NAME_PATTERN: Final = r"^[^\x00-\x1f\x7f]*$"
QUEUE_PATTERN: Final = r"^[A-Za-z0-9_.\-]{1,64}$"
ID_PATTERN: Final = r"^[0-9A-Za-z]{22}$"
NO_NUL: Final = r"^[^\x00]*$"
_ENV_NAME: Final = r"^[^=\x00]+$"
RFC3339: Final = r"^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+\-]\d\d:\d\d)$"

MIB: Final = 1024 * 1024
_YEAR_S: Final = 366 * 86_400
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_MS: Final = 253_000_000_000_000
"""A day in the year 9987: later times could not be written with four digits in every time zone."""


def _within_a_mib(text: str) -> str:
    # A character has at most four bytes: short texts need not be encoded to be measured.
    if len(text) * 4 > MIB and len(text.encode()) > MIB:
        raise ValueError(f"is longer than {MIB:,} bytes")
    return text


def _whole(number: Any) -> Any:
    """Let 5.0 pass as 5: in JSON they are the same number, and some languages write no other."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


_short_enough = AfterValidator(_within_a_mib)
Text = Annotated[str, StringConstraints(max_length=MIB, pattern=NO_NUL), _short_enough]
Command = Annotated[str, StringConstraints(min_length=1, max_length=MIB, pattern=NO_NUL), _short_enough]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NAME_PATTERN)]
QueueName = Annotated[str, StringConstraints(pattern=QUEUE_PATTERN)]
EnvName = Annotated[str, StringConstraints(max_length=255, pattern=_ENV_NAME)]
Path = Annotated[str, StringConstraints(min_length=1, max_length=4096, pattern=NO_NUL)]
Reference = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NO_NUL)]
or_with_a_point = BeforeValidator(_whole)
Seconds = Annotated[float, Field(le=10 * _YEAR_S, allow_inf_nan=False)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)


def fits(texts: Iterable[str]) -> None:
    if sum(map(len, texts)) > MIB:
        raise ValueError(f"is longer than {MIB:,} characters in all")


def epoch_ms(text: str) -> int:
    """Return the time as milliseconds since 1970, at least 1: for the store, 0 is none."""
    at_ms = (datetime.fromisoformat(text.upper()) - _EPOCH) // timedelta(milliseconds=1)
    if at_ms > _LATEST_MS:
        raise ValueError("is too far in the future")
    return max(1, at_ms)
