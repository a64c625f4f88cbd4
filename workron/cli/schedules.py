"""Commands about schedules: put, ls, show, rm, run, pause, resume."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from workron.amounts import counted
from workron.cli import moments, workflows
from workron.cli.command import command
from workron.cli.connect import ApiOptions, api_options, client_for, client_options, locate
from workron.cli.exits import notice
from workron.cli.listing import command_line
from workron.cli.options import Directory, directory_options, job_body, job_options, words_argument
from workron.cli.render import Column, Format, output_option, print_card, print_document, print_table
from workron.cli.text import printable, printable_lines
from workron.cli.values import given
from workron.client import Client
from workron.client.documents import ScheduleDoc, ScheduleRunDoc

_TIMES: Final = ("cron", "timezone", "overlap", "catch_up", "dst")
name_argument = click.argument("name", metavar="NAME", help="name of the schedule")

SCHEDULES: Final = (
    Column("NAME", lambda schedule: schedule["name"], style=lambda _: "cyan"),
    Column("NEXT", lambda schedule: "paused" if schedule["paused"] else moments.age(schedule["next_run_at"])),
    Column("WHEN", lambda schedule: schedule["description"], flexible=True),
    Column("FIRED", lambda schedule: str(schedule["counts"]["fired"]), 2, right=True),
    Column("SKIPPED", lambda schedule: str(schedule["counts"]["skipped"] or ""), 3, right=True),
    Column("MISSED", lambda schedule: str(schedule["counts"]["missed"] or ""), 3, right=True),
    Column("CRON", lambda schedule: schedule["cron"], 4, style=lambda _: "dim"),
)


@command(
    "workron schedules put nightly --cron '30 2 * * 1-5' --tz Europe/Berlin -- make report",
    "workron schedules put poll --cron '*/5 * * * *' --overlap skip --timeout 4m './poll | ./import'",
    "workron schedules put build --cron @daily --catch-up none --workflow build.yaml",
)
@click.argument("schedule", metavar="NAME", help="name of the schedule")
@words_argument(required=False)
@click.option(
    "--cron", metavar="CRON", required=True, help="cron expression: minute hour day month weekday, or @daily, @hourly …"
)
@click.option("--tz", "timezone", metavar="ZONE", help="time zone of the cron expression: Europe/Berlin (default: UTC)")
@click.option(
    "--overlap", metavar="allow|skip|queue", help="what to do while an earlier run is unfinished (default: allow)"
)
@click.option("--catch-up", metavar="none|last|all", help="which missed runs to start (default: last)")
@click.option("--dst", metavar="once|skip|twice", help="what to do when the clocks change")
@click.option("--paused", is_flag=True, help="create it paused")
@click.option("--workflow", metavar="FILE", help="start the workflow in this file instead of a command")
@job_options
@directory_options
@output_option
@api_options
def put(
    schedule: str,
    words: tuple[str, ...],
    workflow: str | None,
    where: Directory,
    *,
    paused: bool,
    output: Format,
    api: ApiOptions,
    **job: Any,
) -> None:
    """Create or replace a schedule of a command or a workflow."""
    endpoint = locate(api.url)
    cwd = where.chosen(local=endpoint.is_local)
    times = {name: job.pop(name) for name in _TIMES}
    body = _work(words, workflow, job, cwd) | given({**times, "paused": paused or None})
    with client_for(endpoint, api) as client:
        print_document(client.put_schedule(schedule, body), output, _print_schedule)


def _work(words: tuple[str, ...], workflow: str | None, job: Mapping[str, Any], cwd: str | None) -> dict[str, Any]:
    if (workflow is None) == (not words):
        raise click.BadParameter("give either a command after --, or --workflow FILE", param_hint="COMMAND")
    if job["idempotency_key"] is not None:
        raise click.BadParameter("is not for schedules: repeating `put` is safe", param_hint="--idempotency-key")
    if workflow is None:
        return {"job": job_body(job, words, cwd)}
    document = workflows.read(workflow)
    workflows.place(document, cwd)
    return {"workflow": document}


@command("workron schedules", "workron schedules -o jsonl | jq -r .name")
@output_option
@client_options
def ls(output: Format, client: Client) -> None:
    """List schedules by name."""
    if not print_table(client.schedules(), output, SCHEDULES):
        notice("no schedules yet")


@command("workron schedules show nightly", "workron schedules show poll -o json | jq -r '.next_runs[0].at'")
@name_argument
@output_option
@client_options
def show(name: str, output: Format, client: Client) -> None:
    """Show a schedule with its next and its latest runs."""
    print_document(client.schedule(name), output, _print_schedule)


@command("workron schedules rm nightly")
@name_argument
@client_options
def rm(name: str, client: Client) -> None:
    """Delete a schedule; jobs it has started continue."""
    client.delete_schedule(name)


@command("workron schedules run nightly", "workron wait $(workron schedules run nightly)")
@name_argument
@output_option
@client_options
def run(name: str, output: Format, client: Client) -> None:
    """Start a run now; print the id of its job or workflow."""
    print_document(client.run_schedule(name), output, _print_run)


@command("workron schedules pause nightly")
@name_argument
@output_option
@client_options
def pause(name: str, output: Format, client: Client) -> None:
    """Pause a schedule."""
    print_document(client.pause_schedule(name), output, _print_schedule)


@command("workron schedules resume nightly")
@name_argument
@output_option
@client_options
def resume(name: str, output: Format, client: Client) -> None:
    """Resume a schedule from now on."""
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
        jobs = counted(len(workflow["jobs"]), "job")
        yield "workflow", printable(f"{workflow.get('name') or ''} ({jobs})".strip())
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
    many = f" {counted(run['count'], 'time')}" if run["count"] > 1 else ""
    what = run["job"] or run["workflow"] or run["error"] or ""
    return f"{moments.clock(run['at'])} {run['outcome']}{many} {what}".strip()
