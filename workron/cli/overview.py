"""Commands about the whole: queues, health."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import typer

from workron.cli import moments
from workron.cli.command import spread
from workron.cli.connect import ApiOptions, connect
from workron.cli.exits import notice
from workron.cli.render import Column, Format, FormatOption, print_card, print_document, print_table, status_style
from workron.cli.text import printable
from workron.documents import HealthDoc, QueueDoc, ServerDoc

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


def _count(status: str, rank: int) -> Column:
    def cell(queue: Mapping[str, Any]) -> str:
        return str(queue["counts"].get(status, 0))

    def style(queue: Mapping[str, Any]) -> str:
        return status_style(status) if queue["counts"].get(status) else "dim"

    return Column(status.upper(), cell, rank, right=True, style=style)


def _most(queue: Mapping[str, Any]) -> str:
    """How many jobs may wait; nothing where any number may."""
    most = queue.get("max_pending")
    return "" if most is None else str(most)


QUEUES: Final = (
    Column("QUEUE", lambda queue: queue["name"], flexible=True),
    *(_count(status, rank) for status, rank in _RANKS.items()),
    Column("MAX", _most, 2, right=True, style=lambda _: "dim"),
)


@spread
def queues(*, output: FormatOption = Format.TABLE, api: ApiOptions) -> None:
    """List queues with their jobs in each status."""
    with connect(api) as client:
        if not print_table(client.queues(), output, QUEUES):
            notice("no queues yet")


@spread
def set_queue(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", show_default=False, help="name of the queue")],
    *,
    max_pending: Annotated[
        str,
        typer.Option(
            metavar="N|none", help="most jobs that may wait; none: what is set for all queues, if anything is"
        ),
    ],
    output: FormatOption = Format.TABLE,
    api: ApiOptions,
) -> None:
    """Set how many jobs may wait in a queue; beyond it submissions are refused for a while."""
    most = _limit(max_pending)
    with connect(api) as client:
        print_document(client.limit_queue(queue, most), output, _print_queue)


def _print_queue(queue: QueueDoc) -> None:
    print_table([queue], Format.TABLE, QUEUES)


def _limit(text: str) -> int | None:
    if text == "none":
        return None
    if not text.isdecimal():
        raise typer.BadParameter(f"{text!r} is neither a number of jobs nor none", param_hint="--max-pending")
    return int(text)


@spread
def health(*, output: FormatOption = Format.TABLE, api: ApiOptions) -> None:
    """Show how the API, its Redis and the reaper are."""
    with connect(api) as client:
        print_document(client.health(), output, _print_health)


def _print_health(report: HealthDoc) -> None:
    style = "bold green" if report["status"] == "ok" else "bold red"
    print_card(report["status"], style, _facts(report))


def _facts(report: HealthDoc) -> Iterator[tuple[str, str]]:
    for warning in report["warnings"]:
        yield "warning", printable(warning)
    yield "instance", printable(report["instance"])
    yield "api", f"workron {report['version']}, up {moments.length(report['uptime'])}"
    server = report["server"]
    yield "redis", printable(f"{server['product']} {server['version']}")
    yield "durability", _durability(server)
    yield "eviction", printable(server["maxmemory_policy"] or "unknown")
    yield "memory", _memory(server)
    age_s = report["reaper"]["last_pass_age"]
    yield "reaper", "never ran" if age_s is None else f"last pass {moments.length(age_s)} ago"
    yield "jobs", f"{report['running']} running, {report['due']} to come at a known time"


def _durability(server: ServerDoc) -> str:
    if server["appendonly"] is None:
        return "unknown"
    return printable(f"AOF, fsync {server['appendfsync']}") if server["appendonly"] else "no AOF"


def _memory(server: ServerDoc) -> str:
    if server["used_memory"] is None:
        return "unknown"
    used = f"{server['used_memory'] / 2**20:.1f} MiB"
    return f"{used} of {server['maxmemory'] / 2**20:.1f} MiB" if server["maxmemory"] else f"{used}, no limit"
