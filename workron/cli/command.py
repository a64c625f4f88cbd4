"""Behaviour of all commands: integers are exit codes, errors are one line, help ends with examples."""

import errno
import signal
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

import click
from click.exceptions import NoSuchCommand

from workron.cli.exits import MEANING, Exit, complain, notice, silence
from workron.errors import WorkronError
from workron.lines import lines_of

_LEFT: Final = 2
_OPTIONS: Final = "Options"
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class Option(click.Option):
    """An option; the help of its command lists it under its section."""

    def __init__(self, *args: Any, section: str = _OPTIONS, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.section: Final = section


class Command(click.Command):
    """A command; `epilog` holds its examples, one per line."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)):
                sections.setdefault(getattr(param, "section", _OPTIONS), []).append(record)
        for title in sorted(sections, key=_OPTIONS.__eq__):  # the options of all commands come last
            with formatter.section(title):
                formatter.write_dl(sections[title])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """Write the examples unwrapped: a wrapped command line can't be copied."""
        if self.epilog:
            with formatter.section("Examples"):
                formatter.write("".join(f"{'':{_LEFT}}{line}\n" for line in lines_of(self.epilog)))


class Group(click.Group):
    """A group whose commands are imported when they are used.

    `sections` gives under each title the commands by name: where they are (`module:variable`) and their summary, or a
    group. `default` is the command for a call that names none.
    """

    def __init__(
        self,
        sections: Mapping[str, Mapping[str, tuple[str, str] | click.Group]],
        *,
        default: str | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(**attributes)
        self.sections: Final = sections
        self._default = default
        self._places = {name: place for commands in sections.values() for name, place in commands.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        return list(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        place = self._places.get(cmd_name)
        if not isinstance(place, tuple):
            return place
        module, _, variable = place[0].partition(":")
        command: click.Command = getattr(import_module(f"workron.cli.{module}"), variable)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as error:
            raise NoSuchCommand(error.command_name, possibilities=self._places, ctx=ctx) from None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if self._default and (not args or (args[0].startswith("-") and args[0] != "--help")):
            args = [self._default, *args]
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        for title, commands in self.sections.items():
            rows = [
                (name.ljust(10), place[1] if isinstance(place, tuple) else place.help or "")
                for name, place in commands.items()
            ]
            with formatter.section(title):
                formatter.write_dl(rows)


class Root(Group):
    """The group of all commands."""

    def invoke(self, ctx: click.Context) -> None:
        """Run the command and leave with its exit code."""
        ctx.exit(guarded(super().invoke, ctx))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """Write the exit codes, once for all commands."""
        with formatter.section("Exit codes"):
            formatter.write_dl([(f"{code:<4d}", meaning) for code, meaning in MEANING.items()])


def command(*examples: str, cls: type[click.Command] = Command, **attributes: Any) -> Callable[[Any], click.Command]:
    """Return a decorator that makes a command of a function; its help ends with the examples."""
    return click.command(cls=cls, epilog="\n".join(examples), **attributes)


def options(*decorators: Decorator) -> Decorator:
    """Return one decorator for several options, which help lists in this order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def guarded(call: Callable[..., Any], *args: Any) -> int:
    """Run a command's function and return the exit code; print an error in one line."""
    before = _let_interrupts_raise()
    try:
        code = call(*args)
        sys.stdout.flush()
    except WorkronError as error:
        return complain(error)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, before)
        return Exit.INTERRUPTED
    except BrokenPipeError:
        silence(sys.stdout.fileno())
        return Exit.BROKEN_PIPE
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        silence(sys.stdout.fileno())
        notice("can't write the output: no space left")
        return Exit.UNEXPECTED
    finally:
        signal.signal(signal.SIGINT, before)
    return code or Exit.OK


def _let_interrupts_raise() -> Any:
    """Let Ctrl-C raise KeyboardInterrupt, unless the parent has it ignored; return the handler before."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return before
