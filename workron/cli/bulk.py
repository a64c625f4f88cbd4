"""Bulk actions: cancel, retry, rm and mv of all matching jobs."""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from workron.cli import moments
from workron.cli.command import spread
from workron.cli.connect import ApiOptions, connect
from workron.cli.exits import Exit, notice
from workron.cli.options import moment
from workron.cli.render import Column, Format, FormatOption, print_table, status_style
from workron.client.documents import ActionDoc

if TYPE_CHECKING:
    from workron.client import Client

_LOOK_EVERY_S: Final = 0.5
_SAY_EVERY_S: Final = 10.0
"""Interval of progress lines when stderr is not a terminal."""

_TIME: Final = "RFC 3339, local time without an offset"


@dataclass(frozen=True)
class BulkOptions:
    """Filters that select jobs instead of ids, and how to run the action."""

    status: Annotated[str | None, typer.Option(metavar="STATUS", help="all jobs with this status")] = None
    queue: Annotated[str | None, typer.Option(metavar="NAME", help="all jobs of this queue")] = None
    name: Annotated[str | None, typer.Option(metavar="TEXT", help="all jobs of this name")] = None
    workflow: Annotated[str | None, typer.Option(metavar="ID", help="all jobs of this workflow")] = None
    error: Annotated[str | None, typer.Option(metavar="TEXT", help="all jobs whose error contains this")] = None
    tag: Annotated[list[str] | None, typer.Option(metavar="TEXT", help="all jobs with this tag. May be repeated")] = (
        None
    )
    created_after: Annotated[str | None, typer.Option(metavar="TIME", help=f"not created before ({_TIME})")] = None
    created_before: Annotated[str | None, typer.Option(metavar="TIME", help="created before")] = None
    finished_after: Annotated[str | None, typer.Option(metavar="TIME", help="not finished before")] = None
    finished_before: Annotated[str | None, typer.Option(metavar="TIME", help="finished before")] = None
    all_: Annotated[
        bool, typer.Option("--all", help="confirm that all matching jobs are meant; without other filters: all jobs")
    ] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only count the jobs that match")] = False
    wait: Annotated[
        bool, typer.Option("--wait", help="wait until the action is complete; with filters, show its progress")
    ] = False

    def body_or_ids(
        self,
        action: str,
        ids: list[str] | None,
        of_ids: Mapping[str, object] = MappingProxyType({}),
        *,
        waits: bool = False,
    ) -> dict[str, Any] | None:
        """Return the body of a bulk action, or None for a command with ids; raise an error unless it is one of them.

        `of_ids`: options that require ids; `waits`: the command can also wait for jobs given by id.
        """
        wanted = any(getattr(self, field.name) for field in fields(self) if not (waits and field.name == "wait"))
        if bool(ids) == wanted:
            raise typer.BadParameter(
                "name jobs by id, or select them with filters like --queue and --all", param_hint="ID"
            )
        for option, value in of_ids.items():
            if wanted and value:
                raise typer.BadParameter("needs job ids", param_hint=option)
        return self.body(action) if wanted else None

    def body(self, action: str, to: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the body of `POST /jobs/actions`."""
        if not (self.all_ or self.dry_run):
            message = "this affects all matching jobs: confirm it, or count them first with --dry-run"
            raise typer.BadParameter(message, param_hint="--all")
        where = {
            "status": self.status,
            "queue": self.queue,
            "name": self.name,
            "workflow": self.workflow,
            "error": self.error,
            "tag": self.tag or None,
            "created_after": moment("--created-after", self.created_after),
            "created_before": moment("--created-before", self.created_before),
            "finished_after": moment("--finished-after", self.finished_after),
            "finished_before": moment("--finished-before", self.finished_before),
        }
        given = {name: value for name, value in where.items() if value is not None}
        return {"action": action, "filter": given, "dry_run": self.dry_run} | ({"to": to} if to else {})


def order(client: "Client", body: Mapping[str, Any], output: Format, *, wait: bool) -> int:
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


def _follow(client: "Client", action: ActionDoc) -> ActionDoc:
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
    told = f"{action['matched']:,} match" if action["dry_run"] else f"{action['done']:,} done{failed}"
    return f"{action['action']}: {share} of {total:,} jobs checked, {told}"


def _what(action: ActionDoc) -> str:
    where = {name: value for name, value in action["filter"].items() if value}
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


@spread
def actions(
    *,
    abort: Annotated[str | None, typer.Option(metavar="ID", help="abort this action; completed changes stay")] = None,
    output: FormatOption = Format.TABLE,
    api: ApiOptions,
) -> None:
    """List bulk actions with their progress, newest first."""
    with connect(api) as client:
        found = client.actions() if abort is None else [client.abort_action(abort)]
        if not print_table(found, output, ACTIONS):
            notice("no actions yet")


@spread
def move(
    bulk: BulkOptions,
    *,
    to_queue: Annotated[str | None, typer.Option(metavar="NAME", help="target queue")] = None,
    to_priority: Annotated[int | None, typer.Option(metavar="1-9", help="new priority")] = None,
    output: FormatOption = Format.TABLE,
    api: ApiOptions,
) -> int:
    """Move all matching waiting jobs to another queue or priority, in the background."""
    to = {name: value for name, value in (("queue", to_queue), ("priority", to_priority)) if value is not None}
    if not to:
        raise typer.BadParameter("give the target queue or priority", param_hint="--to-queue, --to-priority")
    body = bulk.body("move", to)
    with connect(api) as client:
        return order(client, body, output, wait=bulk.wait)
