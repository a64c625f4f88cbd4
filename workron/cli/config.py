"""Settings for a command: built from flags, variables and `workron.toml`, each value with its source."""

import os
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final, TypedDict
from urllib.parse import urlsplit

from pydantic import SecretStr, ValidationError
from pydantic_core import ErrorDetails

from workron.durations import format_duration, parse_duration
from workron.errors import SettingsError
from workron.settings import FILE, PREFIX, Settings, from_file, from_variables
from workron.specs.messages import in_words

_NO_SETTINGS: Final = frozenset(
    {"URL", "JOB_ID", "ATTEMPT", "QUEUE", "FENCE", "GUARD", "LIFELINE", "CONTROL", "RESULT", "PARENTS", "WORKFLOW_ID"}
    | {"TOKEN", "ARRAY_ID", "ARRAY_INDEX", "ARRAY_SIZE", "ARRAY_VALUE", "SCHEDULE", "SCHEDULED_AT"}
)
"""Variables that are not settings: those of clients, of jobs' commands, and of processes started by `up`."""
_MASK: Final = "********"


class Setting(TypedDict):
    """A setting in force; `origin` is a flag, a variable, `workron.toml` or `default`."""

    name: str
    value: str | None
    origin: str


def load(flags: Mapping[str, Any]) -> Settings:
    """Return the settings in force; raise SettingsError with one line that has no secrets."""
    sources = Sources(flags)
    try:
        return Settings.model_validate({**sources.file, **sources.variables, **flags})
    except ValidationError as error:
        raise SettingsError("; ".join(sources.explain(fault) for fault in error.errors())) from None


def explain(flags: Mapping[str, Any]) -> list[Setting]:
    """Return all settings in force with their origins."""
    settings, sources = load(flags), Sources(flags)
    return [
        Setting(name=name, value=_text(settings, name), origin=sources.origin(name)) for name in Settings.model_fields
    ]


def unknown_variables() -> list[str]:
    """Return warnings about variables that look like settings and are not."""
    settings = [name.upper() for name in Settings.model_fields]
    variables = {name: name.upper().removeprefix(PREFIX) for name in sorted(os.environ)}
    return [
        f"{name} is ignored: there is no such setting{_similar(rest, settings, PREFIX)}"
        for name, rest in variables.items()
        if rest != name.upper() and rest not in settings and rest not in _NO_SETTINGS
    ]


def _similar(name: str, names: Iterable[str], prefix: str = "") -> str:
    close = get_close_matches(name, names, n=1)
    return f", did you mean {prefix}{close[0]}?" if close else ""


class Sources:
    """The values of each source of settings."""

    def __init__(self, flags: Mapping[str, Any]) -> None:
        self._flags = flags
        self.variables: Final = from_variables()
        self.file: Final = _read_file()

    def origin(self, name: str) -> str:
        """Return the source of this setting's value."""
        if name in self._flags:
            return flag(name)
        if name in self.variables:
            return f"{PREFIX}{name.upper()}"
        return FILE if name in self.file else "default"

    def explain(self, fault: ErrorDetails) -> str:
        """Return a readable message for a validation error."""
        message = in_words(fault["msg"])
        if not fault["loc"]:
            return message
        name = str(fault["loc"][0])
        if fault["type"] == "extra_forbidden":
            return f"{FILE}: there is no setting {name!r}" + _similar(name, Settings.model_fields)
        value = "" if _is_secret(name) or repr(fault["input"]) in message else f", not {fault['input']!r}"
        return f"{self.origin(name)}: {message[:1].lower()}{message[1:]}{value}"


def flag(name: str) -> str:
    """Return the flag that sets this setting."""
    return f"--{name.replace('_', '-')}"


def _read_file() -> Mapping[str, Any]:
    try:
        return from_file()
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{FILE} is not valid TOML: {error}") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"{FILE} is not valid UTF-8, at byte {error.start}") from None
    except OSError as error:
        raise SettingsError(f"can't read {FILE}: {(error.strerror or '').lower()}") from None


def _is_secret(name: str) -> bool:
    field = Settings.model_fields.get(name)
    return field is not None and "SecretStr" in str(field.annotation)


def is_duration(name: str) -> bool:
    """Return whether the setting is a duration, not a plain number."""
    field = Settings.model_fields[name]
    return parse_duration.__name__ in f"{field.annotation} {field.metadata}"


def secrets_among(flags: Mapping[str, Any]) -> list[str]:
    """Return the given flags that hold secrets: the process list shows them to all users."""
    return [
        name for name, value in flags.items() if _is_secret(name) and (name != "redis" or _MASK in masked_url(value))
    ]


def _text(settings: Settings, name: str) -> str | None:
    if name == "heartbeat":
        return format_duration(settings.heartbeat_s)
    value = getattr(settings, name)
    if isinstance(value, SecretStr):
        return masked_url(value.get_secret_value()) if name == "redis" else _MASK
    return masked_url(value) if name == "api" and value else as_text(name, value)


def as_text(name: str, value: Any) -> str | None:
    """Return the value of a setting as written in its flag; None for None."""
    if value is None or value == []:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return format_duration(value) if is_duration(name) else f"{value:g}"
    return ",".join(value) if isinstance(value, list) else str(value)


def masked_url(url: str) -> str:
    """Return a URL without user, password and parameters."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return _MASK
    misread = "#" in url or "@" in f"{parts.path}{parts.query}"  # part of a password that was not escaped
    if misread or parts.scheme not in {"redis", "rediss", "unix", "http", "https"}:
        return _MASK
    place = parts.netloc.rpartition("@")
    user = f"{_MASK}@" if place[1] else ""
    return f"{parts.scheme}://{user}{place[2]}{parts.path}" + (f"?{_MASK}" if parts.query else "")
