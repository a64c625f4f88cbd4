"""The behaviour of all commands: integers are exit codes, errors are one line, help ends with examples."""

import errno
import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from workron.cli.exits import MEANING, Exit, complain, notice, silence
from workron.errors import WorkronError

_LEFT = 2
_WHOLE_SENTENCE = 1000


class Command(TyperCommand):
    """A command; `epilog` holds its examples, one a line."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _convert_plainly(super().get_params(ctx))

    def invoke(self, ctx: Any) -> None:
        """Run the command and leave with its exit code."""
        raise typer.Exit(guarded(super().invoke, ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]", *(_argument_name(param) for param in self.get_params(ctx) if _is_argument(param))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        params: list[Any] = self.get_params(ctx)
        arguments = [(_argument_name(param), param.help) for param in params if _is_argument(param)]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl(arguments)
        with formatter.section("Options"):
            formatter.write_dl([param.get_help_record(ctx) for param in params if not _is_argument(param)])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - the signature is typer's
        """Write the examples unwrapped: a wrapped command line can't be copied."""
        if self.epilog:
            with formatter.section("Examples"):
                formatter.write("".join(f"{'':{_LEFT}}{line}\n" for line in self.epilog.splitlines()))


class Group(TyperGroup):
    """A group of commands; its help lists them under the titles given as `rich_help_panel`."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _convert_plainly(super().get_params(ctx))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.commands[name]
            title = getattr(command, "rich_help_panel", None) or "Commands"
            sections.setdefault(title, []).append((name, command.get_short_help_str(_WHOLE_SENTENCE)))
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(10), summary) for name, summary in rows])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the exit codes, once for all commands."""
        if ctx.parent is None:
            with formatter.section("Exit codes"):
                formatter.write_dl([(f"{code:<4d}", meaning) for code, meaning in MEANING.items()])


class ListingGroup(Group):
    """A group whose default command is `ls`: `queues -o json` is `queues ls -o json`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] != "--help"):
            args = ["ls", *args]
        return super().parse_args(ctx, args)


def _is_argument(param: Any) -> bool:
    return bool(param.param_type_name == "argument")


def _argument_name(param: Any) -> str:
    return f"{param.metavar}..." if param.nargs == -1 else str(param.metavar)


def guarded(call: Callable[..., Any], *args: Any) -> int:
    """Run a command's function and return the exit code; print an error in one line."""
    try:
        code = call(*args)
        sys.stdout.flush()
    except WorkronError as error:
        return complain(error)
    except BrokenPipeError:
        silence(sys.stdout.fileno())
        return Exit.BROKEN_PIPE
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        silence(sys.stdout.fileno())
        notice("can't write the output: no space left")
        return Exit.UNEXPECTED
    return code or Exit.OK


def spread(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turn the fields of dataclass parameters into options of the command."""
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if name != "return" and is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in groups:
            parameters += _field_parameters(groups[parameter.name])
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[parameter.name]))

    @functools.wraps(function)
    def call(**values: Any) -> Any:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        return function(**values)

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del call.__wrapped__
    return call


def _field_parameters(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(group)
    ]


class _PlainConversion:
    """Convert the value of an option to str, int or a choice of an enum."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def coerce(self, value: Any, param: Any, ctx: typer.Context) -> Any:
        if param.multiple or param.nargs == -1:
            return tuple(value or ())
        if value is None or isinstance(value, self._kind):
            return value
        try:
            return self._kind(value)
        except ValueError as error:
            raise typer.BadParameter(f"{value!r} is not {self._wanted()}", ctx=ctx, param=param) from error

    def _wanted(self) -> str:
        choices = [str(choice.value) for choice in getattr(self._kind, "__members__", {}).values()]
        return f"one of {', '.join(choices)}" if choices else "a whole number"


def _convert_plainly(params: Iterable[Any]) -> list[Any]:
    """Avoid the import of pydantic, which typer would use to convert str to str (0.15 s per call)."""
    for param in (plain := list(params)):
        if (descriptor := getattr(param, "type_descriptor", None)) is not None:
            element = get_args(descriptor.annotation)
            param._runtime_param = _PlainConversion(element[0] if element else descriptor.annotation)
    return plain
