"""Commands about schedules: put, ls, show, rm, run, pause, resume."""

from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer

from workron.cli import moments, workflows
from workron.cli.command import spread
from workron.cli.connect import ApiOptions, client_for, connect, locate
from workron.cli.exits import notice
from workron.cli.listing import command_line
from workron.cli.options import DirectoryOptions, JobOptions
from workron.cli.render import Column, Format, FormatOption, print_card, print_document, print_table
from workron.cli.text import printable, printable_lines
from workron.client.documents import ScheduleDoc, ScheduleRunDoc

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="name of the schedule")]
OptionalWords = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="COMMAND",
        show_default=False,
        help="a single argument is a shell command, several are a program and its arguments",
    ),
]

SCHEDULES: Final = (
    Column("NAME", lambda schedule: schedule["name"], style=lambda _: "cyan"),
    Column("NEXT", lambda schedule: "paused" if schedule["paused"] else moments.age(schedule["next_run_at"])),
    Column("WHEN", lambda schedule: schedule["description"], flexible=True),
    Column("FIRED", lambda schedule: str(schedule["counts"]["fired"]), 2, right=True),
    Column("SKIPPED", lambda schedule: str(schedule["counts"]["skipped"] or ""), 3, right=True),
    Column("MISSED", lambda schedule: str(schedule["counts"]["missed"] or ""), 3, right=True),
    Column("CRON", lambda schedule: schedule["cron"], 4, style=lambda _: "dim"),
)


@spread
def put(
    schedule: Name,
    words: OptionalWords = None,
    *,
    cron: Annotated[
        str, typer.Option(metavar="CRON", help="cron expression: minute hour day month weekday, or @daily, @hourly …")
    ],
    tz: Annotated[
        str | None, typer.Option(metavar="ZONE", help="time zone of the cron expression: Europe/Berlin (default: UTC)")
    ] = None,
    overlap: Annotated[
        str | None,
        typer.Option(metavar="allow|skip|queue", help="what to do while an earlier run is unfinished (default: allow)"),
    ] = None,
    catch_up: Annotated[
        str | None, typer.Option(metavar="none|last|all", help="which missed runs to start (default: last)")
    ] = None,
    dst: Annotated[
        str | None, typer.Option(metavar="once|skip|twice", help="what to do when the clocks change")
    ] = None,
    paused: Annotated[bool, typer.Option("--paused", help="create it paused")] = False,
    workflow: Annotated[
        str | None, typer.Option(metavar="FILE", help="start the workflow in this file instead of a command")
    ] = None,
    job: JobOptions,
    where: DirectoryOptions,
    output: FormatOption = Format.TABLE,
    api: ApiOptions,
) -> None:
    """Create or replace a schedule of a command or a workflow."""
    endpoint = locate(api.url)
    cwd = where.chosen(local=endpoint.is_local)
    fields = {
        **_work(words, workflow, job, cwd),
        "cron": cron,
        "timezone": tz,
        "overlap": overlap,
        "catch_up": catch_up,
        "dst": dst,
        "paused": paused or None,
    }
    body = {key: value for key, value in fields.items() if value is not None}
    with client_for(endpoint, api) as client:
        print_document(client.put_schedule(schedule, body), output, _print_schedule)


def _work(words: list[str] | None, workflow: str | None, job: JobOptions, cwd: str | None) -> dict[str, Any]:
    if (workflow is None) == (not words):
        raise typer.BadParameter("give either a command after --, or --workflow FILE", param_hint="COMMAND")
    if job.idempotency_key is not None:
        raise typer.BadParameter("is not for schedules: repeating `put` is safe", param_hint="--idempotency-key")
    if workflow is None:
        return {"job": job.body(words or [], cwd)}
    document = workflows.read(workflow)
    workflows.place(document, cwd)
    return {"workflow": document}


@spread
def ls(*, output: FormatOption = Format.TABLE, api: ApiOptions) -> None:
    """List schedules by name."""
    with connect(api) as client:
        if not print_table(client.schedules(), output, SCHEDULES):
            notice("no schedules yet")


@spread
def show(name: Name, *, output: FormatOption = Format.TABLE, api: ApiOptions) -> None:
    """Show a schedule with its next and its latest runs."""
    with connect(api) as client:
        print_document(client.schedule(name), output, _print_schedule)


@spread
def rm(name: Name, *, api: ApiOptions) -> None:
    """Delete a schedule; jobs it has started continue."""
    with connect(api) as client:
        client.delete_schedule(name)


@spread
def run(name: Name, *, output: FormatOption = Format.TABLE, api: ApiOptions) -> None:
    """Start a run now; print the id of its job or workflow."""
    with connect(api) as client:
        print_document(client.run_schedule(name), output, _print_run)


@spread
def pause(name: Name, *, output: FormatOption = Format.TABLE, api: ApiOptions) -> None:
    """Pause a schedule."""
    with connect(api) as client:
        print_document(client.pause_schedule(name), output, _print_schedule)


@spread
def resume(name: Name, *, output: FormatOption = Format.TABLE, api: ApiOptions) -> None:
    """Resume a schedule from now on."""
    with connect(api) as client:
        print_document(client.resume_schedule(name), output, _print_schedule)


def _print_run(run: ScheduleRunDoc) -> None:
    print(run["workflow"] or run["job"], flush=True)


def _print_schedule(schedule: ScheduleDoc) -> None:
    heading = schedule["name"] + ("  paused" if schedule["paused"] else "")
    print_card(heading, "bold", _rows(schedule))


def _rows(schedule: ScheduleDoc) -> Iterator[tuple[str, str]]:
    yield "when", printable(schedule["description"])
    yield "cron", printable(f"{schedule['cron']}  {schedule['timezone']}")
    job, workflow = schedule["job"], schedule["workflow"]
    if job is not None:
        yield "command", printable_lines(command_line({"command": None, "argv": None, **job}))  # type: ignore[typeddict-item]  # a command or argv
    if workflow is not None:
        jobs = len(workflow["jobs"])
        yield "workflow", printable(f"{workflow.get('name') or ''} ({jobs} job{'s' if jobs > 1 else ''})".strip())
    yield "rules", f"overlap {schedule['overlap']}, catch up {schedule['catch_up']}, clock changes {schedule['dst']}"
    yield "created", moments.clock(schedule["created_at"])
    if schedule["queued"]:
        yield "queued", f"{moments.clock(schedule['queued'])}, until an earlier one has ended"
    for run in schedule["next_runs"]:
        yield "next", printable(run["words"])
    for past in schedule["runs"]:
        yield "last", printable(_past(past))
    yield "counted", ", ".join(f"{count} {outcome}" for outcome, count in schedule["counts"].items() if count)


def _past(run: ScheduleRunDoc) -> str:
    many = f" {run['count']} times" if run["count"] > 1 else ""
    what = run["job"] or run["workflow"] or run["error"] or ""
    return f"{moments.clock(run['at'])} {run['outcome']}{many} {what}".strip()
