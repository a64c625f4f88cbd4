"""The values of options: texts that become what the API takes, or are refused with an example of a right one."""

import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from workron.durations import parse_duration
from workron.errors import InvalidRequest
from workron.lines import lines_of
from workron.strict_json import repeated, repeated_key

_CODES: Final = re.compile(r"[0-9]{1,3}(-[0-9]{1,3})?")
_WHENS: Final = ("done", "failed", "finished")


class Value(click.ParamType[Any]):
    """A value parsed by a function that raises ValueError for a wrong one; `name` shows in help."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the options that were given; an empty text is a value."""
    return {name: value for name, value in values.items() if value is not None and value != ()}


def stdin_or(text: str) -> list[str]:
    """Return the whitespace-separated words on stdin for `-`, otherwise the text alone.

    Without any word the command that writes them has probably failed.
    """
    words = sys.stdin.read().split() if text == "-" else [text]
    if not words:
        raise InvalidRequest("there are no ids on stdin")
    return words


def merged(values: Iterable[tuple[str, Any] | Mapping[str, Any]], option: str) -> dict[str, Any]:
    """Return all pairs and objects of a repeated option as one object; refuse a key that is given twice."""
    pairs = [pair for value in values for pair in (value.items() if isinstance(value, Mapping) else [value])]
    if (key := repeated(pairs)) is not None:
        raise click.BadParameter(f"{key} is given more than once", param_hint=option)
    return dict(pairs)


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def _decimal(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is not a number; write it like 2 or 0.5")
    return number


def _count(text: str) -> int:
    if (number := _number(text)) < 1:
        raise ValueError(f"must be at least 1, not {number}")
    return number


def _moment(text: str) -> str:
    """Return a time in UTC as RFC 3339."""
    try:
        at = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        message = f"{text!r} is not a time; write it like 2030-01-31T18:00 or 2030-01-31T18:00:00+01:00"
        raise ValueError(message) from None
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z"


def _moment_or_duration(text: str) -> str | float:
    """Return a time as RFC 3339, a duration in seconds."""
    for parse in (_moment, parse_duration):
        try:
            return parse(text)
        except ValueError:
            pass
    message = f"{text!r} is not a time; write it like 30s, 2h, 2030-01-31T18:00 or 2030-01-31T18:00:00+01:00"
    raise ValueError(message)


def _codes(text: str) -> list[int | str]:
    parts = [part.strip() for part in text.split(",")]
    if not all(_CODES.fullmatch(part) for part in parts):
        raise ValueError(f"{text!r} are not exit codes; write them like 1,64-78")
    return [int(part) if part.isdecimal() else part for part in parts]


def _concurrency(text: str) -> dict[str, Any]:
    key, _, limit = text.rpartition(":")
    if not key or not limit.isdecimal():
        raise ValueError(f"{text!r} is not KEY:N; write it like customer-7:2")
    return {"key": key, "limit": int(limit)}


def _metadata(text: str) -> dict[str, Any]:
    key, equals, value = text.partition("=")
    if text.lstrip().startswith("{"):
        try:
            found: dict[str, Any] = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not a JSON object: {error}") from None
        if (twice := repeated_key(text)) is not None:
            raise ValueError(f"duplicate key {twice!r}")
        return found
    if not equals:
        raise ValueError(f"{text!r} is neither K=V nor a JSON object")
    return {key: value}


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is not a pair; write it like KEY=VALUE")
    return key, value


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals and name not in os.environ:
        raise ValueError(f"{name} has no value here; write {name}=VALUE")
    return name, value if equals else os.environ[name]


def _dependencies(text: str) -> list[str | dict[str, str]]:
    return [_dependency(item) for item in stdin_or(text)]


def _dependency(text: str) -> str | dict[str, str]:
    job, colon, when = text.partition(":")
    if not colon:
        return job
    if when not in _WHENS:
        raise ValueError(f"{when!r} is not one of {', '.join(_WHENS)}")
    return {"job": job, "when": when}


def _lines(path: str) -> list[str]:
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return lines_of(data.decode("utf-8-sig"))  # a byte order mark is no part of the first line
    except UnicodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from None
    except OSError as error:
        raise ValueError(f"{path} can't be read: {(error.strerror or '').lower()}") from None


NUMBER: Final = Value("N", _number)
DECIMAL: Final = Value("N", _decimal)
COUNT: Final = Value("N", _count)
DURATION: Final = Value("TIME", parse_duration)
MOMENT: Final = Value("TIME", _moment)
MOMENT_OR_DURATION: Final = Value("WHEN", _moment_or_duration)
CODES: Final = Value("CODES", _codes)
CONCURRENCY: Final = Value("KEY:N", _concurrency)
METADATA: Final = Value("K=V", _metadata)
PAIR: Final = Value("K=V", _pair)
VARIABLE: Final = Value("K=V", _variable)
DEPENDENCIES: Final = Value("ID[:WHEN]", _dependencies)
LINES: Final = Value("FILE", _lines)
