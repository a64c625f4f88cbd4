"""Options that several commands share, and how those of a job become the body of a submission."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Final, NamedTuple

import click

from workron.cli.command import Decorator, options
from workron.cli.job_fields import PLAIN
from workron.cli.values import (
    CODES,
    CONCURRENCY,
    DECIMAL,
    DEPENDENCIES,
    DURATION,
    LINES,
    METADATA,
    MOMENT_OR_DURATION,
    NUMBER,
    VARIABLE,
    given,
    merged,
)

COMMAND_FOLLOWS: Final = {"allow_interspersed_args": False}
"""Context settings: after the first word of the command to run, all options belong to that command."""

id_argument = click.argument("job_id", metavar="ID", help="id of a job")
wait_option = click.option("--wait", is_flag=True, help="wait until it has ended; the exit code is the result")


def words_argument(*, required: bool) -> Decorator:
    """Return the argument for a command."""
    return click.argument(
        "words",
        metavar="COMMAND..." if required else "[COMMAND...]",
        nargs=-1,
        required=required,
        help="a single argument is a shell command, several are a program and its arguments",
    )


def ids_argument(help: str, name: str = "ids", metavar: str = "ID...") -> Decorator:
    """Return an argument for at least one id."""
    return click.argument(name, metavar=metavar, nargs=-1, required=True, help=f"{help}; - reads them from stdin")


job_options = options(
    *PLAIN,
    click.option(
        "--metadata",
        type=METADATA,
        multiple=True,
        help="metadata: a key and value, or a JSON object. May be repeated",
    ),
    click.option(
        "--env",
        type=VARIABLE,
        multiple=True,
        help="environment variable; K alone copies the current value. May be repeated",
    ),
    click.option(
        "--concurrency", type=CONCURRENCY, help="run at most N jobs with this key at a time, in all queues together"
    ),
    click.option(
        "--unique",
        "unique__key",
        metavar="KEY",
        help="unique key: only one job at a time holds it; a second one is not stored",
    ),
    click.option(
        "--unique-until",
        "unique__until",
        type=click.Choice(("started", "finished")),
        metavar="WHEN",
        help="hold the key until the job has `finished` (default) or `started`",
    ),
    click.option(
        "--unique-ttl",
        "unique__ttl",
        type=DURATION,
        help="release the key after this time at the latest (default: 24h)",
    ),
    click.option(
        "--on-conflict",
        "unique__on_conflict",
        type=click.Choice(("return", "reject", "replace")),
        metavar="WHAT",
        help="if another job holds the key: `return` that job (default), `reject` this one, or `replace` that one",
    ),
    click.option("--retry-delay", "retry__delay", type=DURATION, help="delay before the second attempt (default: 1s)"),
    click.option(
        "--retry-factor",
        "retry__factor",
        metavar="N",
        type=DECIMAL,
        help="multiplier of each further delay (default: 2)",
    ),
    click.option("--retry-max-delay", "retry__max_delay", type=DURATION, help="maximum delay (default: 1h)"),
    click.option(
        "--retry-jitter",
        "retry__jitter",
        metavar="0-1",
        type=DECIMAL,
        help="random share of each delay, 0 to 1 (default: 0.5)",
    ),
    click.option("--retry-on-exit", type=CODES, help="retry only after these exit codes: 1,64-78"),
    click.option("--no-retry-on-exit", type=CODES, help="never retry after these exit codes"),
    click.option("--delay", type=DURATION, help="delay before the job may start"),
    click.option(
        "--run-at",
        type=MOMENT_OR_DURATION,
        help="start at this time: 2030-01-31T18:00 (local time without an offset), or after 30s, 2h",
    ),
    click.option(
        "--deadline",
        type=MOMENT_OR_DURATION,
        help="fail the job unless it has ended by then: 30s, 2h, 7d from now, or a time",
    ),
    click.option(
        "--expires",
        type=MOMENT_OR_DURATION,
        help="cancel the job unless it has started by then: 30s, 2h, 7d from now, or a time",
    ),
    click.option(
        "--after",
        "depends_on",
        type=DEPENDENCIES,
        multiple=True,
        help="start after that job is done (or failed, or finished); - reads ids from stdin. May be repeated",
    ),
    click.option(
        "--array",
        "array__size",
        type=NUMBER,
        help="run as an array of N tasks, numbered by $WORKRON_ARRAY_INDEX",
    ),
    click.option(
        "--array-values",
        "array__values",
        type=LINES,
        help="run one task per line of the file, given as $WORKRON_ARRAY_VALUE; - reads stdin",
    ),
    click.option(
        "--max-parallel",
        "array__max_parallel",
        type=NUMBER,
        help="maximum number of unfinished tasks at a time",
    ),
    click.option("--idempotency-key", metavar="KEY", help="submitting again with this key returns the same job"),
)
"""Options of a job. Each is named for the field of `POST /jobs` that it sends, `__` before a field of that field."""


def job_body(job: Mapping[str, Any], words: Sequence[str], cwd: str | None) -> dict[str, Any]:
    """Return the body of `POST /jobs`; options not given use the API's defaults. Without words it has no command."""
    body: dict[str, Any] = {"command": words[0]} if len(words) == 1 else {"argv": list(words)} if words else {}
    for name, value in given({**job, "cwd": cwd, "idempotency_key": None}).items():
        field, nested, inner = name.partition("__")
        if nested:
            body.setdefault(field, {})[inner] = value
        else:
            body[field] = _joined(value, f"--{field}") if isinstance(value, tuple) else value
    if "key" not in body.get("unique", {"key": ""}):
        raise click.BadParameter("requires --unique", param_hint="--unique-ttl, --unique-until, --on-conflict")
    if body.get("array", {}).keys() == {"max_parallel"}:
        raise click.BadParameter("requires --array or --array-values", param_hint="--max-parallel")
    return body


def _joined(values: tuple[Any, ...], option: str) -> Any:
    """Return the values of a repeated option as one: a list of all, or an object of all pairs and objects."""
    if isinstance(values[0], list):
        return [item for value in values for item in value]
    if isinstance(values[0], str):
        return list(values)
    return merged(values, option)


class Directory(NamedTuple):
    """The working directory of commands, as given."""

    cwd: str | None
    no_cwd: bool

    def chosen(self, *, local: bool) -> str | None:
        """Return the given directory, otherwise the caller's if the worker probably has it."""
        if self.no_cwd or not (local or self.cwd):
            return None
        try:
            return os.path.abspath(self.cwd or "") if local else self.cwd
        except FileNotFoundError:
            raise click.BadParameter("the current directory no longer exists; use --cwd or --no-cwd") from None


def directory_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the working directory; the function gets them as `where`."""

    @click.option(
        "--cwd", metavar="DIR", help="working directory; the current one by default, if the API is on this machine"
    )
    @click.option("--no-cwd", is_flag=True, help="use the worker's default directory")
    @wraps(function)
    def call(cwd: str | None, no_cwd: bool, **values: Any) -> Any:
        return function(where=Directory(cwd, no_cwd), **values)

    return call
