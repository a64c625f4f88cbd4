"""The options of `submit` and `run`, and their conversion to the body of a submission."""

import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from workron.durations import parse_duration

_CODES = re.compile(r"[0-9]{1,3}(-[0-9]{1,3})?")
_WHENS = ("done", "failed", "finished")
_UNTILS = ("started", "finished")
_CONFLICTS = ("return", "reject", "replace")

Words = Annotated[
    list[str],
    typer.Argument(
        metavar="COMMAND",
        show_default=False,
        help="a single argument is a shell command, several are a program and its arguments",
    ),
]
Id = Annotated[str, typer.Argument(metavar="ID", show_default=False, help="id of a job")]
SomeIds = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", show_default=False, help="ids of jobs; - reads them from stdin; or see --all"),
]
Ids = Annotated[
    list[str], typer.Argument(metavar="ID", show_default=False, help="ids of jobs; - reads them from stdin")
]


@dataclass(frozen=True)
class DirectoryOptions:
    """The working directory of commands."""

    cwd: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="working directory; the current one by default, if the API is on this machine"
        ),
    ] = None
    no_cwd: Annotated[bool, typer.Option("--no-cwd", help="use the worker's default directory")] = False

    def chosen(self, *, local: bool) -> str | None:
        """Return the given directory, otherwise the caller's if the worker probably has it."""
        if self.no_cwd or not (local or self.cwd):
            return None
        try:
            return os.path.abspath(self.cwd or "") if local else self.cwd
        except FileNotFoundError:
            raise typer.BadParameter("the current directory no longer exists; use --cwd or --no-cwd") from None


@dataclass(frozen=True)
class JobOptions:
    """The options of a job."""

    name: Annotated[str | None, typer.Option(metavar="TEXT", help="name of the job, for `ls --name`")] = None
    tag: Annotated[list[str] | None, typer.Option(metavar="TEXT", help="label, for `ls --tag`. May be repeated")] = None
    metadata: Annotated[
        list[str] | None,
        typer.Option(metavar="K=V", help="metadata: a key and value, or a JSON object. May be repeated"),
    ] = None
    queue: Annotated[str | None, typer.Option(metavar="NAME", help="queue of the job (default: `default`)")] = None
    concurrency: Annotated[
        str | None,
        typer.Option(metavar="KEY:N", help="run at most N jobs with this key at a time, in all queues together"),
    ] = None
    priority: Annotated[
        int | None, typer.Option(metavar="1-9", help="priority from 0 to 9, highest first (default: 5)")
    ] = None
    unique: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="unique key: only one job at a time holds it; a second one is not stored"),
    ] = None
    unique_until: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="hold the key until the job has `finished` (default) or `started`"),
    ] = None
    unique_ttl: Annotated[
        str | None, typer.Option(metavar="TIME", help="release the key after this time at the latest (default: 24h)")
    ] = None
    on_conflict: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="if another job holds the key: `return` that job (default), `reject` this one, or `replace` that one",
        ),
    ] = None
    max_attempts: Annotated[int | None, typer.Option(metavar="N", help="maximum number of attempts")] = None
    retry_delay: Annotated[
        str | None, typer.Option(metavar="TIME", help="delay before the second attempt (default: 1s)")
    ] = None
    retry_factor: Annotated[
        float | None, typer.Option(metavar="N", help="multiplier of each further delay (default: 2)")
    ] = None
    retry_max_delay: Annotated[str | None, typer.Option(metavar="TIME", help="maximum delay (default: 1h)")] = None
    retry_jitter: Annotated[
        float | None, typer.Option(metavar="0-1", help="random share of each delay, 0 to 1 (default: 0.5)")
    ] = None
    retry_on_exit: Annotated[
        str | None, typer.Option(metavar="CODES", help="retry only after these exit codes: 1,64-78")
    ] = None
    no_retry_on_exit: Annotated[
        str | None, typer.Option(metavar="CODES", help="never retry after these exit codes")
    ] = None
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="stop an attempt after this time: 30s, 5m, 2h")
    ] = None
    delay: Annotated[str | None, typer.Option(metavar="TIME", help="delay before the job may start")] = None
    run_at: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", help="start at this time: 2030-01-31T18:00 (local time without an offset), or after 30s, 2h"
        ),
    ] = None
    deadline: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="fail the job unless it has ended by then: 30s, 2h, 7d from now, or a time"),
    ] = None
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", help="cancel the job unless it has started by then: 30s, 2h, 7d from now, or a time"
        ),
    ] = None
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="K=V", help="environment variable; K alone copies the current value. May be repeated"),
    ] = None
    after: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID[:WHEN]",
            help="start after that job is done (or failed, or finished); - reads ids from stdin. May be repeated",
        ),
    ] = None
    array: Annotated[
        int | None, typer.Option(metavar="N", help="run as an array of N tasks, numbered by $WORKRON_ARRAY_INDEX")
    ] = None
    array_values: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="run one task per line of the file, given as $WORKRON_ARRAY_VALUE; - reads stdin"
        ),
    ] = None
    max_parallel: Annotated[
        int | None, typer.Option(metavar="N", help="maximum number of unfinished tasks at a time")
    ] = None
    idempotency_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="submitting again with this key returns the same job")
    ] = None

    def body(self, words: Sequence[str], cwd: str | None) -> dict[str, Any]:
        """Return the body of `POST /jobs`; options not given use the API's defaults."""
        fields = {
            **command_fields(words),
            "array": self._array(),
            "name": self.name,
            "tags": self.tag or None,
            "metadata": _metadata(self.metadata or ()) or None,
            "queue": self.queue,
            "concurrency": _concurrency(self.concurrency),
            "priority": self.priority,
            "unique": self._unique(),
            "max_attempts": self.max_attempts,
            "retry": self._retry() or None,
            "retry_on_exit": _codes("--retry-on-exit", self.retry_on_exit),
            "no_retry_on_exit": _codes("--no-retry-on-exit", self.no_retry_on_exit),
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

    def _array(self) -> dict[str, Any] | None:
        if self.array is None and self.array_values is None:
            if self.max_parallel is not None:
                raise typer.BadParameter("requires --array or --array-values", param_hint="--max-parallel")
            return None
        array: dict[str, Any] = {"size": self.array, "max_parallel": self.max_parallel}
        if self.array_values is not None:
            array["values"] = _lines(self.array_values)
        return {name: value for name, value in array.items() if value is not None}

    def _unique(self) -> dict[str, Any] | None:
        about = {
            "until": _one_of("--unique-until", self.unique_until, _UNTILS),
            "on_conflict": _one_of("--on-conflict", self.on_conflict, _CONFLICTS),
            "ttl": seconds("--unique-ttl", self.unique_ttl),
        }
        given = {name: value for name, value in about.items() if value is not None}
        if self.unique is None:
            if given:
                raise typer.BadParameter("requires --unique", param_hint="--unique-ttl, --unique-until, --on-conflict")
            return None
        return {"key": self.unique, **given}

    def _retry(self) -> dict[str, Any]:
        waits = {
            "delay": seconds("--retry-delay", self.retry_delay),
            "factor": self.retry_factor,
            "max_delay": seconds("--retry-max-delay", self.retry_max_delay),
            "jitter": self.retry_jitter,
        }
        return {name: value for name, value in waits.items() if value is not None}


def _lines(path: str) -> list[str]:
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise typer.BadParameter(f"{path} can't be read: {error}", param_hint="--array-values") from None
    return text.splitlines()


def _one_of(option: str, text: str | None, choices: Sequence[str]) -> str | None:
    if text is not None and text not in choices:
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(choices)}", param_hint=option)
    return text


def command_fields(words: Sequence[str]) -> dict[str, Any]:
    """Return `command` for one word (parsed by the shell), `argv` for several."""
    return {"command": words[0]} if len(words) == 1 else {"argv": list(words)}


def expand_ids(ids: Iterable[str]) -> list[str]:
    """Return the ids, each `-` replaced by the whitespace-separated ids on stdin."""
    return [found for item in ids for found in (sys.stdin.read().split() if item == "-" else [item])]


def seconds(option: str, text: str | None) -> float | None:
    """Return the duration given to an option."""
    try:
        return parse_duration(text)  # type: ignore[no-any-return]  # it is a number
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _concurrency(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    key, _, limit = text.rpartition(":")
    if not key or not limit.isdecimal():
        raise typer.BadParameter(f"{text!r} is not KEY:N; write it like customer-7:2", param_hint="--concurrency")
    return {"key": key, "limit": int(limit)}


def _codes(option: str, text: str | None) -> list[int | str] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(_CODES.fullmatch(part) for part in parts):
        raise typer.BadParameter(f"{text!r} are not exit codes; write them like 1,64-78", param_hint=option)
    return [int(part) if part.isdecimal() else part for part in parts]


def _metadata(items: Iterable[str]) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if item.lstrip().startswith("{"):
            metadata |= _json_object(item)
        elif equals:
            metadata[key] = value
        else:
            raise typer.BadParameter(f"{item!r} is neither K=V nor a JSON object", param_hint="--metadata")
    return metadata


def _json_object(text: str) -> dict[str, Any]:
    import json

    try:
        found: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"not a JSON object: {error}", param_hint="--metadata") from None
    return found


def moment(option: str, text: str | None) -> str | None:
    """Return the time given to an option, in UTC."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        message = f"{text!r} is not a time; write it like 2030-01-31T18:00 or 2030-01-31T18:00:00+01:00"
        raise typer.BadParameter(message, param_hint=option) from None
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z"


def _moment(option: str, text: str | None) -> str | float | None:
    """Return the time given to an option as RFC 3339, or the seconds of a duration."""
    try:
        return moment(option, text)
    except typer.BadParameter:
        return _length(option, text or "")


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
