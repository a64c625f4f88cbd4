"""The options of `submit` and `run`, and how they become the body of a submission."""

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from workron.durations import parse_duration

_WHENS = ("done", "failed", "finished")

Words = Annotated[
    list[str],
    typer.Argument(
        metavar="COMMAND",
        show_default=False,
        help="one argument goes to the shell, several are a program and its arguments",
    ),
]
Id = Annotated[str, typer.Argument(metavar="ID", show_default=False, help="id of a job")]
Ids = Annotated[
    list[str], typer.Argument(metavar="ID", show_default=False, help="ids of jobs; - reads them from stdin")
]


@dataclass(frozen=True)
class DirectoryOptions:
    """Where commands run."""

    cwd: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="directory to run in; by default this one, if the API is on this machine"),
    ] = None
    no_cwd: Annotated[bool, typer.Option("--no-cwd", help="leave the directory to the worker")] = False

    def chosen(self, *, local: bool) -> str | None:
        """Return the directory named, else the caller's if the worker is likely to have it."""
        if self.no_cwd or not (local or self.cwd):
            return None
        try:
            return os.path.abspath(self.cwd or "") if local else self.cwd
        except FileNotFoundError:
            raise typer.BadParameter("the present directory is gone; use --cwd or --no-cwd") from None


@dataclass(frozen=True)
class JobOptions:
    """What can be said about a job beside its command."""

    name: Annotated[str | None, typer.Option(metavar="TEXT", help="a name for people, and for `ls --name`")] = None
    queue: Annotated[str | None, typer.Option(metavar="NAME", help="queue to wait in, else `default`")] = None
    priority: Annotated[int | None, typer.Option(metavar="1-9", help="9 starts first, 5 is usual")] = None
    max_attempts: Annotated[int | None, typer.Option(metavar="N", help="how often to try in all")] = None
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="stop an attempt after this time: 30s, 5m, 2h")
    ] = None
    delay: Annotated[str | None, typer.Option(metavar="TIME", help="wait this long before the start")] = None
    run_at: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="start at this time: 2030-01-31T18:00, local unless it says; or 30s, 2h"),
    ] = None
    deadline: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="fail unless it has ended by then: 30s, 2h, 7d after now, or a time"),
    ] = None
    expires: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="cancel unless it has started by then: 30s, 2h, 7d after now, or a time"),
    ] = None
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="K=V", help="environment variable; K alone takes its value from here. May be repeated"),
    ] = None
    after: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID[:WHEN]",
            help="start once that job is done (or failed, or finished); - reads ids from stdin. May be repeated",
        ),
    ] = None
    idempotency_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="submitting again with this key gives the same job")
    ] = None

    def body(self, words: Sequence[str], cwd: str | None) -> dict[str, Any]:
        """Return the body of `POST /jobs`; what was not given is left to the API's defaults."""
        fields = {
            **command_fields(words),
            "name": self.name,
            "queue": self.queue,
            "priority": self.priority,
            "max_attempts": self.max_attempts,
            "timeout": seconds("--timeout", self.timeout),
            "delay": seconds("--delay", self.delay),
            "run_at": _moment("--run-at", self.run_at),
            "deadline": _moment("--deadline", self.deadline),
            "expires": _moment("--expires", self.expires),
            "env": dict(_variable(item) for item in self.env or ()) or None,
            "cwd": cwd,
            "depends_on": [_dependency(item) for item in expand_ids(self.after or ())] or None,
        }
        return {name: value for name, value in fields.items() if value is not None}


def command_fields(words: Sequence[str]) -> dict[str, Any]:
    """Return `command` for one word (the shell takes it apart), `argv` for several."""
    return {"command": words[0]} if len(words) == 1 else {"argv": list(words)}


def expand_ids(ids: Iterable[str]) -> list[str]:
    """Return the ids with each `-` replaced by those on stdin, separated by white space."""
    return [found for item in ids for found in (sys.stdin.read().split() if item == "-" else [item])]


def seconds(option: str, text: str | None) -> float | None:
    """Return the length of time given to an option."""
    try:
        return parse_duration(text)  # type: ignore[no-any-return]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _moment(option: str, text: str | None) -> str | float | None:
    """Return the time given to an option as RFC 3339, or the seconds of a length of time."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return _length(option, text)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"


def _length(option: str, text: str) -> float:
    try:
        return float(parse_duration(text))
    except ValueError:
        message = f"{text!r} is not a time; write it like 30s, 2h, 2030-01-31T18:00 or 2030-01-31T18:00:00+01:00"
        raise typer.BadParameter(message, param_hint=option) from None


def _variable(item: str) -> tuple[str, str]:
    name, equals, value = item.partition("=")
    if not equals:
        if name not in os.environ:
            raise typer.BadParameter(f"{name} has no value here; write {name}=VALUE", param_hint="--env")
        value = os.environ[name]
    return name, value


def _dependency(item: str) -> str | dict[str, str]:
    job, colon, when = item.partition(":")
    if not colon:
        return job
    if when not in _WHENS:
        raise typer.BadParameter(f"{when!r} is not one of {', '.join(_WHENS)}", param_hint="--after")
    return {"job": job, "when": when}
