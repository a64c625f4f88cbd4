"""One flag for each setting: made from the fields of `Settings`, for all commands that start a process.

`Settings` takes 0.3 s to import, hence the flags are made when a command needs them, not when it is defined.
"""

import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import typer

from workron.cli.command import Command

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
_METAVARS: Final = {"redis": "URL", "api": "URL", "token": "KEY", "api_key": "KEY", "api_key_file": "FILE"}
_OTHER_WAYS: Final = (
    "Each setting can also be set by an environment variable (--data-dir: WORKRON_DATA_DIR) or, as data_dir, in "
    "workron.toml in the current directory. Flags override variables, variables override the file."
)
_OTHER: Final = "Other settings"
_META: Final = "workron.flags"


class SettingsCommand(Command):
    """A command with a flag for each setting; `flags(ctx)` are the given ones."""

    def get_params(self, ctx: Any) -> list[Any]:
        own = super().get_params(ctx)
        return [*own[:-1], *_options(), *own[-1:]]

    def invoke(self, ctx: Any) -> None:
        values = {name: ctx.params.pop(name) for name in _by_name() if name in ctx.params}
        ctx.meta[_META] = {name: value for name, value in values.items() if value is not None}
        super().invoke(ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the flags in sections, and the other sources of settings."""
        records = {param.name: param.get_help_record(ctx) for param in self.get_params(ctx)}
        for title, names in _sections():
            with formatter.section(title):
                formatter.write_dl([records.pop(name) for name in names])
        with formatter.section("Options"):
            formatter.write_dl([record for record in records.values() if record])
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(_OTHER_WAYS)


def flags(ctx: typer.Context) -> Mapping[str, Any]:
    """Return the settings given as flags."""
    given: Mapping[str, Any] = ctx.meta[_META]
    return given


def _sections() -> Iterator[tuple[str, list[str]]]:
    """Yield titles with their settings; settings of no section come last."""
    known = {name for names in _SECTIONS.values() for name in names}
    for title, names in {**_SECTIONS, _OTHER: [name for name in _by_name() if name not in known]}.items():
        if present := [name for name in names if name in _by_name()]:
            yield title, present


@cache
def _by_name() -> dict[str, Any]:
    return {option.name: option for option in _options()}


@cache
def _options() -> tuple[Any, ...]:
    """Return the options that typer makes from a function with a parameter for each setting."""
    from workron.settings import Settings

    def receive(**_: Any) -> None:
        """Do nothing: only the signature matters."""

    parameters = [_parameter(name, field) for name, field in Settings.model_fields.items()]
    receive.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    receive.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(cls=Command)(receive)
    return tuple(typer.main.get_command(app).params)


def _parameter(name: str, field: Any) -> inspect.Parameter:
    """Return a parameter for the setting as text; `Settings` validates it."""
    from workron.cli.config import as_text, flag

    default = as_text(field.get_default(call_default_factory=True))
    told = "" if default in {None, "false"} else f" (default: {default})"
    help_text = f"{field.description}{told}"
    if field.annotation is bool:
        opposite = flag(name.removeprefix("no_") if name.startswith("no_") else f"no_{name}")
        option = typer.Option(f"{flag(name)}/{opposite}", help=help_text)
        annotation: Any = Annotated[bool | None, option]
    else:
        annotation = Annotated[str | None, typer.Option(flag(name), metavar=_metavar(name, field), help=help_text)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _metavar(name: str, field: Any) -> str:
    kind = field.annotation
    if name in _METAVARS:
        return _METAVARS[name]
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    for sign, metavar in (("list", "A,B"), ("float", "TIME"), ("Path", "DIR"), ("int", "N")):
        if sign in str(kind):
            return metavar
    return "TEXT"
