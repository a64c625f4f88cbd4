"""Times in requests: `"2030-01-31T18:00:00Z"`, or a duration, `30`, `"30s"`, `"5m"`, `"7d"`."""

import re
from typing import Annotated, Any, Final

from pydantic import PlainValidator, WithJsonSchema

from workron.durations import to_ms
from workron.models import Moment
from workron.specs.fields import (
    ANY_LENGTH,
    LONGEST_S,
    RFC3339,
    SOME_LENGTH,
    epoch_ms,
    seconds_of,
)

_TIME: Final = {"type": "string", "pattern": RFC3339, "format": "date-time"}


def _moment(value: Any) -> Moment:
    if isinstance(value, str):
        if re.fullmatch(RFC3339, value, re.ASCII):
            return Moment(at_ms=epoch_ms(value))
        seconds = seconds_of(value)
        if seconds is None:
            raise ValueError("is neither a time (2030-01-31T18:00:00Z) nor a duration up to 3660d (seconds, 30s, 7d)")
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("is neither a string nor a number")  # noqa: TRY004 - pydantic wants this one
    else:
        seconds = value
    if not 0 <= seconds <= LONGEST_S:
        raise ValueError(f"is not between 0 and {LONGEST_S} seconds; a time is written like 2030-01-31T18:00:00Z")
    return Moment(after_ms=to_ms(seconds))


def _to_come(value: Any) -> Moment:
    moment = _moment(value)
    if moment.after_ms == 0:
        raise ValueError("is not a valid time")
    return moment


AnyMoment = Annotated[Moment, PlainValidator(_moment), WithJsonSchema({"anyOf": [*ANY_LENGTH, _TIME]})]
MomentToCome = Annotated[Moment, PlainValidator(_to_come), WithJsonSchema({"anyOf": [*SOME_LENGTH, _TIME]})]


def is_before(one: Moment, other: Moment) -> bool:
    """Return whether the first is at or before the second, as far as this is known before they are stored."""
    if one.after_ms is not None and other.after_ms is not None:
        return one.after_ms <= other.after_ms
    return one.at_ms is not None and other.at_ms is not None and one.at_ms <= other.at_ms
