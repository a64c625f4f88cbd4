"""Commands about queues."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Final

import typer

from workron.cli.command import spread
from workron.cli.connect import ApiOptions, connect
from workron.cli.each import Each
from workron.cli.exits import notice
from workron.cli.options import seconds
from workron.cli.render import Column, Format, FormatOption, print_document, print_table, status_style
from workron.client.documents import QueueDoc
from workron.durations import format_duration

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
_RATE: Final = re.compile(r"(\d{1,9})/(.+)")

Queue = Annotated[str, typer.Argument(metavar="QUEUE", show_default=False, help="name of the queue")]
Queues = Annotated[list[str], typer.Argument(metavar="QUEUE", show_default=False, help="names of queues")]


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
        (f"{queue.get('max_running')} run", queue.get("max_running") is not None),
        (f"{rate['jobs']}/{format_duration(rate['per'])} start" if rate else "", rate),
        (f"{queue.get('max_pending')} wait", queue.get("max_pending") is not None),
    )
    return ", ".join(text for text, is_set in limits if is_set)


QUEUES: Final = (
    Column("QUEUE", lambda queue: queue["name"], flexible=True),
    *(_count(status, rank) for status, rank in _RANKS.items()),
    Column("MAX", _limits, 2, flexible=True, style=lambda _: "dim"),
)


@spread
def queues(*, output: FormatOption = Format.TABLE, api: ApiOptions) -> None:
    """List queues with their settings and the number of jobs in each status."""
    with connect(api) as client:
        if not print_table(client.queues(), output, QUEUES):
            notice("no queues yet")


@spread
def set_queue(
    queue: Queue,
    *,
    max_pending: Annotated[
        str | None,
        typer.Option(metavar="N|none", help="maximum of waiting jobs; none: the limit of all queues, if any"),
    ] = None,
    max_running: Annotated[str | None, typer.Option(metavar="N|none", help="maximum of running jobs")] = None,
    rate: Annotated[
        str | None, typer.Option(metavar="N/TIME|none", help="maximum of jobs started per duration: 10/1m, 1/2s")
    ] = None,
    output: FormatOption = Format.TABLE,
    api: ApiOptions,
) -> None:
    """Limit a queue. Over --max-pending submissions are rejected; with the other limits jobs wait."""
    change: dict[str, Any] = {}
    for name, option, text in (
        ("max_pending", "--max-pending", max_pending),
        ("max_running", "--max-running", max_running),
    ):
        if text is not None:
            change[name] = _limit(option, text)
    if rate is not None:
        change["rate"] = _parse_rate(rate)
    if not change:
        raise typer.BadParameter("give --max-pending, --max-running or --rate")
    with connect(api) as client:
        print_document(client.change_queue(queue, change), output, _print_queue)


@spread
def pause(names: Queues, *, output: FormatOption = Format.TABLE, api: ApiOptions) -> int:
    """Pause queues: no more jobs start; running jobs continue."""
    return _act("pause", names, output, api)


@spread
def resume(names: Queues, *, output: FormatOption = Format.TABLE, api: ApiOptions) -> int:
    """Resume queues: their jobs start again."""
    return _act("resume", names, output, api)


@spread
def purge(queue: Queue, *, output: FormatOption = Format.TABLE, api: ApiOptions) -> None:
    """Cancel all jobs of a queue that are ready to run."""
    with connect(api) as client:
        cancelled = client.purge_queue(queue)
    print_document({"cancelled": cancelled}, output, lambda purged: print(f"{purged['cancelled']} jobs cancelled"))


@spread
def remove(queue: Queue, *, api: ApiOptions) -> None:
    """Delete an empty queue and its settings."""
    with connect(api) as client:
        client.delete_queue(queue)


def _act(action: str, names: list[str], output: Format, api: ApiOptions) -> int:
    with connect(api) as client:
        each = Each(names, partial(client.act_on_queue, action))
        print_table(each, output, QUEUES)
    return each.code


def _print_queue(queue: QueueDoc) -> None:
    print_table([queue], Format.TABLE, QUEUES)


def _limit(option: str, text: str) -> int | None:
    if text == "none":
        return None
    if not text.isdecimal():
        raise typer.BadParameter(f"{text!r} is neither a number of jobs nor none", param_hint=option)
    return int(text)


def _parse_rate(text: str) -> dict[str, Any] | None:
    if text == "none":
        return None
    match = _RATE.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a rate; write it like 10/1m, or none", param_hint="--rate")
    return {"jobs": int(match[1]), "per": seconds("--rate", match[2])}
