"""Commands that change jobs given by id, or all that match: cancel, retry, rm, mv, and `actions`."""

import sys
import time
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any, Final, NamedTuple

import click

from workron.amounts import counted
from workron.cli import moments
from workron.cli.command import command, options
from workron.cli.connect import client_options
from workron.cli.each import Each
from workron.cli.exits import Exit, notice
from workron.cli.listing import OUTCOMES
from workron.cli.render import Column, Format, output_option, print_table, status_style
from workron.cli.stream import await_end
from workron.cli.values import MOMENT, NUMBER, given
from workron.client import Client
from workron.client.documents import ActionDoc, ActionFilterDoc

_LOOK_EVERY_S: Final = 0.5
_SAY_EVERY_S: Final = 10.0
"""Interval of progress lines when stderr is not a terminal."""

_TIME: Final = "RFC 3339, local time without an offset"
_filters = options(
    click.option("--status", metavar="STATUS", help="all jobs with this status"),
    click.option("--queue", metavar="NAME", help="all jobs of this queue"),
    click.option("--name", metavar="TEXT", help="all jobs of this name"),
    click.option("--workflow", metavar="ID", help="all jobs of this workflow"),
    click.option("--error", metavar="TEXT", help="all jobs whose error contains this"),
    click.option("--tag", metavar="TEXT", multiple=True, help="all jobs with this tag. May be repeated"),
    click.option("--created-after", type=MOMENT, help=f"not created before ({_TIME})"),
    click.option("--created-before", type=MOMENT, help="created before"),
    click.option("--finished-after", type=MOMENT, help="not finished before"),
    click.option("--finished-before", type=MOMENT, help="finished before"),
    click.option(
        "--all", "all_", is_flag=True, help="confirm that all matching jobs are meant; without other filters: all jobs"
    ),
    click.option("--dry-run", is_flag=True, help="only count the jobs that match"),
    click.option("--wait", is_flag=True, help="wait until the action is complete; with filters, show its progress"),
)


class Bulk(NamedTuple):
    """Filters that select jobs instead of ids, and how to run the action."""

    where: Mapping[str, Any]
    all_: bool
    dry_run: bool
    wait: bool

    def body_or_ids(
        self, action: str, ids: tuple[str, ...], of_ids: Mapping[str, object] = {}, *, waits: bool = False
    ) -> dict[str, Any] | None:
        """Return the body of a bulk action, or None for a command with ids; raise an error unless it is one of them.

        `of_ids`: options that require ids; `waits`: the command can also wait for jobs given by id.
        """
        wanted = bool(self.where or self.all_ or self.dry_run or (self.wait and not waits))
        if bool(ids) == wanted:
            raise click.BadParameter(
                "name jobs by id, or select them with filters like --queue and --all", param_hint="ID"
            )
        for option, value in of_ids.items():
            if wanted and value:
                raise click.BadParameter("needs job ids", param_hint=option)
        return self.body(action) if wanted else None

    def body(self, action: str) -> dict[str, Any]:
        """Return the body of `POST /jobs/actions`."""
        if not (self.all_ or self.dry_run):
            message = "this affects all matching jobs: confirm it, or count them first with --dry-run"
            raise click.BadParameter(message, param_hint="--all")
        return {"action": action, "filter": self.where, "dry_run": self.dry_run}


def bulk_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the filters, and how to run the action; the function gets them as `bulk`."""

    @_filters
    @wraps(function)
    def call(all_: bool, dry_run: bool, wait: bool, **values: Any) -> Any:
        where = given({name: values.pop(name) for name in ActionFilterDoc.__annotations__})
        return function(bulk=Bulk(where, all_, dry_run, wait), **values)

    return call


ids_argument = click.argument(
    "ids", metavar="[ID...]", nargs=-1, help="ids of jobs; - reads them from stdin; or see --all"
)
tasks_option = click.option("--tasks", metavar="0-9,20", help="only the tasks of an array with these indexes")


@command(
    "workron cancel 01FZpY2zqTkMcXH0Vb8n3R",
    "workron cancel --cascade 01FZpY2zqTkMcXH0Vb8n3R",
    "workron ls --status pending --all -o jsonl | jq -r .id | workron cancel -",
    "workron cancel --queue reports --status pending --all",
)
@ids_argument
@bulk_options
@tasks_option
@click.option("--cascade", is_flag=True, help="also cancel all jobs that depend on them")
@output_option
@client_options
def cancel(
    ids: tuple[str, ...], bulk: Bulk, tasks: str | None, *, cascade: bool, output: Format, client: Client
) -> int:
    """Cancel jobs; running commands are stopped. With filters and --all: all matching jobs, in the background."""
    body = bulk.body_or_ids("cancel", ids, {"--tasks": tasks, "--cascade": cascade}, waits=True)
    if body is not None:
        return order(client, body, output, wait=bulk.wait)
    each = Each(ids, partial(client.cancel, tasks=tasks, cascade=cascade))
    cancelled = list(each) if bulk.wait else each  # stop all before waiting for the first one
    print_table((await_end(client, job["id"]) if bulk.wait else job for job in cancelled), output, OUTCOMES)
    return each.code


@command(
    "workron retry 01FZpY2zqTkMcXH0Vb8n3R",
    "workron retry --queue reports --error 'disk full' --dry-run --wait",
    "workron retry --status failed --all --wait",
)
@ids_argument
@bulk_options
@tasks_option
@output_option
@client_options
def retry(ids: tuple[str, ...], bulk: Bulk, tasks: str | None, output: Format, client: Client) -> int:
    """Run ended jobs again. With filters and --all: all matching jobs, in the background."""
    body = bulk.body_or_ids("retry", ids, {"--tasks": tasks})
    if body is not None:
        return order(client, body, output, wait=bulk.wait)
    each = Each(ids, partial(client.retry, tasks=tasks))
    print_table(each, output, OUTCOMES)
    return each.code


@command("workron rm 01FZpY2zqTkMcXH0Vb8n3R", "workron rm --status done --finished-before 2030-01-31 --all")
@ids_argument
@bulk_options
@output_option
@client_options
def remove(ids: tuple[str, ...], bulk: Bulk, output: Format, client: Client) -> int:
    """Delete finished jobs with their output. With filters and --all: all matching jobs, in the background."""
    body = bulk.body_or_ids("delete", ids)
    if body is not None:
        return order(client, body, output, wait=bulk.wait)
    each = Each(ids, client.delete)
    for _ in each:
        pass
    return each.code


@command("workron actions", "workron actions --abort 01FZpY2zqTkMcXH0Vb8n3R")
@click.option("--abort", metavar="ID", help="abort this action; completed changes stay")
@output_option
@client_options
def actions(abort: str | None, output: Format, client: Client) -> None:
    """List bulk actions with their progress, newest first."""
    found = client.actions() if abort is None else [client.abort_action(abort)]
    if not print_table(found, output, ACTIONS):
        notice("no actions yet")


@command("workron mv --queue reports --to-queue slow --all", "workron mv --tag nightly --to-priority 1 --all --wait")
@bulk_options
@click.option("--to-queue", metavar="NAME", help="target queue")
@click.option("--to-priority", metavar="1-9", type=NUMBER, help="new priority")
@output_option
@client_options
def move(bulk: Bulk, to_queue: str | None, to_priority: int | None, output: Format, client: Client) -> int:
    """Move all matching waiting jobs to another queue or priority, in the background."""
    to = {name: value for name, value in (("queue", to_queue), ("priority", to_priority)) if value is not None}
    if not to:
        raise click.BadParameter("give the target queue or priority", param_hint="--to-queue, --to-priority")
    body = bulk.body("move") | {"to": to}
    return order(client, body, output, wait=bulk.wait)


def order(client: Client, body: Mapping[str, Any], output: Format, *, wait: bool) -> int:
    """Start an action; print its id, or with `wait` its result."""
    action = client.order_action(body)
    if not wait:
        if output is Format.TABLE:
            print(action["id"], flush=True)
        else:
            print_table([action], output, ACTIONS)
        return Exit.OK
    try:
        action = _follow(client, action)
    except KeyboardInterrupt:
        notice(f"it continues in the background; to abort it: workron actions --abort {action['id']}")
        raise
    print_table([action], output, ACTIONS)
    if action["first_error"]:
        notice(action["first_error"])
    return Exit.CONFLICT if action["failed"] or action["state"] == "aborted" else Exit.OK


def _follow(client: Client, action: ActionDoc) -> ActionDoc:
    """Return the action when it has ended; show its progress on stderr meanwhile."""
    shown = sys.stderr.isatty()
    said_at = time.monotonic()
    while action["state"] == "running":
        if shown:
            print(f"\r\x1b[K{progress(action)}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - said_at > _SAY_EVERY_S:
            said_at = time.monotonic()
            notice(progress(action))
        time.sleep(_LOOK_EVERY_S)
        action = client.action(action["id"])
    if shown:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return action


def progress(action: ActionDoc) -> str:
    """Return the progress of an action in one line."""
    total = max(action["total"], action["looked"])
    share = f"{action['looked'] / total:.0%}" if total else "0%"
    failed = f", {action['failed']:,} failed" if action["failed"] else ""
    matches = counted(action["matched"], "matches", "match")
    told = matches if action["dry_run"] else f"{action['done']:,} done{failed}"
    return f"{action['action']}: {share} of {counted(total, 'job')} checked, {told}"


def _what(action: ActionDoc) -> str:
    where: dict[str, Any] = {name: value for name, value in action["filter"].items() if value}
    to = {name: value for name, value in (action["to"] or {}).items() if value}
    said = [f"{name}={value if isinstance(value, str) else ','.join(value)}" for name, value in where.items()]
    return " ".join([*said, *(f"→ {name}={value}" for name, value in to.items())])


def _number(name: str) -> Any:
    return lambda action: str(action[name])


ACTIONS: Final = (
    Column("ID", lambda action: action["id"], style=lambda _: "cyan"),
    Column("ACTION", lambda action: action["action"] + (" (dry run)" if action["dry_run"] else "")),
    Column("STATE", lambda action: action["state"], style=lambda action: status_style(action["state"])),
    Column("LOOKED", _number("looked"), rank=2, right=True),
    Column("MATCHED", _number("matched"), right=True),
    Column("DONE", _number("done"), right=True),
    Column("FAILED", _number("failed"), right=True),
    Column("AGE", lambda action: moments.age(action["created_at"]), rank=3, right=True),
    Column("JOBS", _what, rank=1, flexible=True),
)
