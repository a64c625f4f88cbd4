"""One flag per setting, made from the fields of `Settings`, for all commands that start a process.

`Settings` takes 0.3 s to import: only the modules of these commands import this one.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any, Final, Literal, get_args, get_origin

import click

from workron.cli.command import Command, Decorator, Option, options
from workron.cli.config import as_text, flag, is_duration, load, secrets_among, unknown_variables
from workron.cli.exits import notice
from workron.settings import Settings

_SECTIONS: Final = {
    "Redis": ("redis", "namespace", "allow_eviction", "data_dir"),
    "API": ("host", "port", "allowed_hosts", "unfenced", "max_body"),
    "Security": ("api_key", "api_key_file", "no_auth", "audit_entries"),
    "Backpressure": ("max_pending", "max_pending_total", "max_memory_share"),
    "Worker": ("api", "token", "worker_name", "slots", "queues", "kill_grace", "drain_timeout"),
    "Recovery": ("lease", "heartbeat", "reap_every", "retry_delay", "retry_max_delay"),
    "Retention": ("retention_done", "retention_failed"),
    "Log": ("log_format", "log_level"),
}
_OTHER: Final = "Other settings"
_METAVARS: Final = {"redis": "URL", "api": "URL", "token": "KEY", "api_key": "KEY", "api_key_file": "FILE"}
_OTHER_WAYS: Final = (
    "Each setting can also be set by an environment variable (--data-dir: WORKRON_DATA_DIR) or, as data_dir, in "
    "workron.toml in the current directory. Flags override variables, variables override the file."
)


class SettingsCommand(Command):
    """A command with a flag for each setting."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the flags, and the other sources of settings."""
        super().format_options(ctx, formatter)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(_OTHER_WAYS)


def settings_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add a flag for each setting; the function gets the given ones as `flags`."""

    @options(*(_option(name, section) for name, section in _names()))
    @wraps(function)
    def call(**values: Any) -> Any:
        flags = {name: values.pop(name) for name, _ in _names()}
        return function(flags={name: value for name, value in flags.items() if value is not None}, **values)

    return call


def settings_of(flags: Mapping[str, Any]) -> Settings:
    """Return the settings in force with the flags of this command."""
    warn_of_unknown_variables()
    settings = load(flags)
    for name in secrets_among(flags):
        variable = f"WORKRON_{name.upper()}"
        notice(f"{flag(name)} is visible to every user of this machine: set {variable} instead")
    return settings


def warn_of_unknown_variables() -> None:
    for warning in unknown_variables():
        notice(warning)


def _names() -> Iterator[tuple[str, str]]:
    """Yield settings with their sections; settings of no section come last."""
    known = {name: section for section, names in _SECTIONS.items() for name in names}
    for name in [*known, *(name for name in Settings.model_fields if name not in known)]:
        if name in Settings.model_fields:
            yield name, known.get(name, _OTHER)


def _option(name: str, section: str) -> Decorator:
    """Return an option for the setting as text; `Settings` validates it."""
    field = Settings.model_fields[name]
    default = as_text(name, field.get_default(call_default_factory=True))
    told = "" if default in {None, "false"} else f" (default: {default})"
    help_text = f"{field.description}{told}"
    if field.annotation is bool:
        opposite = flag(name.removeprefix("no_") if name.startswith("no_") else f"no_{name}")
        return click.option(f"{flag(name)}/{opposite}", name, default=None, cls=Option, section=section, help=help_text)
    return click.option(flag(name), name, metavar=_metavar(name, field), cls=Option, section=section, help=help_text)


def _metavar(name: str, field: Any) -> str:
    kind = field.annotation
    if name in _METAVARS:
        return _METAVARS[name]
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    if is_duration(name):
        return "TIME"
    for sign, metavar in (("list", "A,B"), ("float", "0-1"), ("Path", "DIR"), ("int", "N")):
        if sign in str(kind):
            return metavar
    return "TEXT"
