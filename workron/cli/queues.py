"""Commands about queues."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import click

from workron.amounts import counted
from workron.cli.command import command
from workron.cli.connect import client_options
from workron.cli.each import Each
from workron.cli.exits import notice
from workron.cli.render import Column, Format, output_option, print_document, print_table, status_style
from workron.cli.values import Value, given
from workron.client import Client
from workron.client.documents import QueueDoc
from workron.durations import format_duration, parse_duration

_RANKS: Final = {
    "pending": 0,
    "running": 0,
    "failed": 1,
    "done": 2,
    "scheduled": 3,
    "blocked": 4,
    "cancelled": 5,
    "skipped": 6,
}
_NONE: Final = "none"
_RATE: Final = re.compile(r"(\d{1,9})/(.+)")


def _limit(text: str) -> int | str:
    if text != _NONE and not text.isdecimal():
        raise ValueError(f"{text!r} is neither a number of jobs nor none")
    return _NONE if text == _NONE else int(text)


def _parse_rate(text: str) -> dict[str, Any] | str:
    match = _RATE.fullmatch(text)
    if match is None and text != _NONE:
        raise ValueError(f"{text!r} is not a rate; write it like 10/1m, or none")
    return {"jobs": int(match[1]), "per": parse_duration(match[2])} if match else _NONE


LIMIT: Final = Value("N|none", _limit)
RATE: Final = Value("N/TIME|none", _parse_rate)
queue_argument = click.argument("queue", metavar="QUEUE", help="name of the queue")
queues_argument = click.argument("names", metavar="QUEUE...", nargs=-1, required=True, help="names of queues")


def _count(status: str, rank: int) -> Column:
    def cell(queue: Mapping[str, Any]) -> str:
        return str(queue["counts"].get(status, 0))

    def style(queue: Mapping[str, Any]) -> str:
        return status_style(status) if queue["counts"].get(status) else "dim"

    return Column(status.upper(), cell, rank, right=True, style=style)


def _limits(queue: Mapping[str, Any]) -> str:
    """Return the settings of a queue as text: `paused, 3 run, 10/1m start, 500 wait`."""
    rate = queue.get("rate")
    limits = (
        ("paused", queue.get("paused")),
        (counted(queue.get("max_running") or 0, "runs", "run"), queue.get("max_running") is not None),
        (f"{rate['jobs']}/{format_duration(rate['per'])} start" if rate else "", rate),
        (counted(queue.get("max_pending") or 0, "waits", "wait"), queue.get("max_pending") is not None),
    )
    return ", ".join(text for text, is_set in limits if is_set)


QUEUES: Final = (
    Column("QUEUE", lambda queue: queue["name"], flexible=True),
    *(_count(status, rank) for status, rank in _RANKS.items()),
    Column("MAX", _limits, 2, flexible=True, style=lambda _: "dim"),
)


@command("workron queues", "workron queues -o json")
@output_option
@client_options
def queues(output: Format, client: Client) -> None:
    """List queues with their settings and the number of jobs in each status."""
    if not print_table(client.queues(), output, QUEUES):
        notice("no queues yet")


@command(
    "workron queues set reports --max-pending 10000",
    "workron queues set reports --max-running 4 --rate 100/1m",
    "workron queues set reports --max-running none --rate none",
)
@queue_argument
@click.option("--max-pending", type=LIMIT, help="maximum of waiting jobs; none: the limit of all queues, if any")
@click.option("--max-running", type=LIMIT, help="maximum of running jobs")
@click.option("--rate", type=RATE, help="maximum of jobs started per duration: 10/1m, 1/2s")
@output_option
@client_options
def set_queue(queue: str, output: Format, client: Client, **limits: Any) -> None:
    """Limit a queue. Over --max-pending submissions are rejected; with the other limits jobs wait."""
    change = {name: None if value == _NONE else value for name, value in given(limits).items()}
    if not change:
        raise click.BadParameter("give --max-pending, --max-running or --rate")
    print_document(client.change_queue(queue, change), output, _print_queue)


@command("workron queues pause reports mail")
@queues_argument
@output_option
@client_options
def pause(names: tuple[str, ...], output: Format, client: Client) -> int:
    """Pause queues: no more jobs start; running jobs continue."""
    return _act("pause", names, output, client)


@command("workron queues resume reports mail")
@queues_argument
@output_option
@client_options
def resume(names: tuple[str, ...], output: Format, client: Client) -> int:
    """Resume queues: their jobs start again."""
    return _act("resume", names, output, client)


@command("workron queues purge reports")
@queue_argument
@output_option
@client_options
def purge(queue: str, output: Format, client: Client) -> None:
    """Cancel all jobs of a queue that are ready to run."""
    cancelled = client.purge_queue(queue)
    shown = f"{counted(cancelled, 'job')} cancelled"
    print_document({"cancelled": cancelled}, output, lambda _: print(shown))


@command("workron queues rm reports")
@queue_argument
@client_options
def remove(queue: str, client: Client) -> None:
    """Delete an empty queue and its settings."""
    client.delete_queue(queue)


def _act(action: str, names: tuple[str, ...], output: Format, client: Client) -> int:
    each = Each(names, partial(client.act_on_queue, action))
    print_table(each, output, QUEUES)
    return each.code


def _print_queue(queue: QueueDoc) -> None:
    print_table([queue], Format.TABLE, QUEUES)
