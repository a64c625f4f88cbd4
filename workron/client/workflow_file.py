"""Workflow files: the body of `POST /workflows` as JSON, YAML or TOML."""

import json
import math
import tomllib
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any, Final

from workron import strict_json
from workron.errors import InvalidRequest

_MOMENTS: Final = ("run_at", "deadline", "expires")


def parse(text: str, suffix: str, *, source: str) -> dict[str, Any]:
    """Return the document in the text; `suffix` gives its format, `source` names it in errors.

    Without a suffix (stdin), text that starts with `{` is JSON, any other text is YAML.
    """
    kind = suffix.lower() or (".json" if text.lstrip().startswith("{") else ".yaml")
    if kind not in _PARSERS:
        raise InvalidRequest(f"{source}: the name of a workflow file must end in {', '.join(_PARSERS)}")
    try:
        document = _plain(_PARSERS[kind](text), "")
        _check(document)
    except _FileError as error:
        raise InvalidRequest(f"{source}: {error}") from None
    except RecursionError:
        raise InvalidRequest(f"{source}: nested too deeply") from None
    checked: dict[str, Any] = document
    return checked


class _FileError(Exception):
    """An error in the file, without its name."""


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise _FileError(f"line {error.lineno}, column {error.colno}: {error.msg}") from None


def _parse_toml(text: str) -> Any:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _FileError(str(error)) from None


def _parse_yaml(text: str) -> Any:
    from workron.client import workflow_yaml

    try:
        return workflow_yaml.parse(text)
    except ValueError as error:
        raise _FileError(str(error)) from None


_PARSERS: Final[dict[str, Callable[[str], Any]]] = {
    ".json": _parse_json,
    ".yaml": _parse_yaml,
    ".yml": _parse_yaml,
    ".toml": _parse_toml,
}


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if (key := strict_json.repeated(pairs)) is not None:
        raise _FileError(f"duplicate key {key!r}")
    return dict(pairs)


def _no_constant(name: str) -> Any:
    raise _FileError(f"{name} is not JSON")


def _plain(value: Any, path: str) -> Any:
    """Return the value as JSON has it: times become text, what JSON lacks is refused."""
    match value:
        case dict():
            for key in value:
                if not isinstance(key, str):
                    raise _FileError(f"{path or 'top level'}: the key {key!r} must be a string; quote it")
            return {key: _plain(item, f"{path}.{key}".lstrip(".")) for key, item in value.items()}
        case list():
            return [_plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
        case datetime() if not path.endswith(_MOMENTS):
            raise _FileError(f"{path}: a time is not allowed here; put it in quotes if it is text")
        case datetime():
            return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case float() if not math.isfinite(value):
            raise _FileError(f"{path}: {value} is not a JSON number")
        case str() | bool() | int() | float() | None:
            return value
    raise _FileError(f"{path}: {type(value).__name__} is not allowed here")


def _check(document: Any) -> None:
    if not isinstance(document, dict) or not isinstance(document.get("jobs"), list):
        raise _FileError("a workflow is a mapping with a list `jobs` and an optional `name`")
    for index, job in enumerate(document["jobs"]):
        if not isinstance(job, dict):
            raise _FileError(f"jobs[{index}] must be a mapping with a `name` and a `command` or `argv`")
