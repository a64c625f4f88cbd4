"""Commands about workflows: submit, show, extend and cancel them."""

import os
import sys
import time
from pathlib import Path
from typing import Any, Final

import click

from workron.amounts import counted
from workron.cli import listing, moments
from workron.cli.command import command
from workron.cli.connect import ApiOptions, api_options, client_for, client_options, locate
from workron.cli.exits import Exit, notice
from workron.cli.options import Directory, directory_options, wait_option
from workron.cli.render import Column, Format, output_option, print_card, print_document, print_table, status_style
from workron.cli.stream import TERMINAL
from workron.client import Client
from workron.client.documents import JobDoc, WorkflowDoc
from workron.errors import InvalidRequest

_LOOK_S: Final = 10.0
"""Interval of checking the counts while waiting; the end of the awaited job triggers a check, too."""


@command(
    "workron workflow submit build.yaml",
    "workron workflow submit --wait build.toml && echo all done",
    "./generate | workron workflow submit -",
)
@click.argument("file", metavar="FILE", help="file to submit; - is stdin")
@directory_options
@wait_option
@click.option("--idempotency-key", metavar="KEY", help="submitting again with this key returns the same workflow")
@output_option
@api_options
def submit(
    file: str, where: Directory, idempotency_key: str | None, *, wait: bool, output: Format, api: ApiOptions
) -> int:
    """Submit the jobs of a JSON, YAML or TOML file, all or nothing; print the id of the workflow."""
    document = read(file)
    endpoint = locate(api.url)
    place(document, where.chosen(local=endpoint.is_local))
    with client_for(endpoint, api) as client:
        workflow = client.submit_workflow(document, idempotency_key=idempotency_key)
        if output is Format.TABLE:
            print(workflow["id"], flush=True)
        result = _await_end(client, workflow["id"]) if wait else workflow
    if output is not Format.TABLE:
        print_document(result, output, _print_workflow)
    elif wait:
        _print_workflow(result)
    return Exit.JOB_FAILED if result["status"] == "failed" else Exit.OK


@command("workron workflow show 01FZpY2zqTkMcXH0Vb8n3R")
@click.argument("workflow_id", metavar="ID", help="id of a workflow")
@output_option
@client_options
def show(workflow_id: str, output: Format, client: Client) -> None:
    """Show a workflow and its jobs."""
    print_document(client.workflow(workflow_id), output, _print_workflow)


@command(
    "workron workflow add more.yaml --to 01FZpY2zqTkMcXH0Vb8n3R",
    "./generate | workron workflow add -         # inside a job of a workflow: to its own",
)
@click.argument("file", metavar="FILE", help="file with jobs; - is stdin")
@directory_options
@click.option(
    "--to",
    metavar="ID",
    envvar="WORKRON_WORKFLOW_ID",
    show_envvar=True,
    help="id of the workflow; inside a job, its own by default",
)
@click.option("--idempotency-key", metavar="KEY", help="adding again with this key returns the same jobs")
@output_option
@api_options
def add(
    file: str, where: Directory, to: str | None, idempotency_key: str | None, output: Format, api: ApiOptions
) -> None:
    """Add the jobs of a file to an unfinished workflow, all or nothing; print their ids."""
    if to is None:
        raise click.BadParameter("set --to: this is not a job of a workflow", param_hint="--to")
    document = read(file)
    endpoint = locate(api.url)
    place(document, where.chosen(local=endpoint.is_local))
    if (token := os.environ.get("WORKRON_TOKEN")) and not os.environ.get("WORKRON_API_KEY"):
        endpoint = endpoint._replace(key=token)
    with client_for(endpoint, api) as client:
        jobs = client.add_jobs(to, document["jobs"], idempotency_key=idempotency_key)
    if output is not Format.TABLE:
        print_table(jobs, output, _columns(jobs))
        return
    for job in jobs:
        print(job["id"])


@command("workron workflow cancel 01FZpY2zqTkMcXH0Vb8n3R")
@click.argument("workflow_id", metavar="ID", help="id of a workflow")
@output_option
@client_options
def cancel(workflow_id: str, output: Format, client: Client) -> None:
    """Cancel all unfinished jobs of a workflow; running commands are stopped, a final job still runs."""
    print_document(client.cancel_workflow(workflow_id), output, _print_workflow)


def read(file: str) -> dict[str, Any]:
    """Return the workflow in a file or on stdin."""
    from workron.client import workflow_file

    if file == "-":
        return workflow_file.parse(_text(sys.stdin.buffer.read(), "stdin"), "", source="stdin")
    path = Path(file)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"can't read {file}: {(error.strerror or '').lower()}") from None
    return workflow_file.parse(_text(data, file), path.suffix, source=file)


def _text(data: bytes, source: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{source}: not UTF-8 text, at byte {error.start}") from None


def place(document: dict[str, Any], base: str | None) -> None:
    """Set the directory of jobs without one, and resolve relative ones against it."""
    if base is None:
        return
    for job in document["jobs"]:
        own = job.setdefault("cwd", base)
        if isinstance(own, str):
            job["cwd"] = os.path.join(base, own)


def _await_end(client: Client, workflow_id: str) -> WorkflowDoc:
    shown = ""
    while True:
        workflow = client.workflow(workflow_id)
        progress = _progress(workflow)
        if progress != shown:
            shown = progress
            notice(progress)
        if workflow["status"] != "running":
            return workflow
        client.persist()
        _wait_for_some(client, workflow)


def _wait_for_some(client: Client, workflow: WorkflowDoc) -> None:
    """Return when an unfinished job has ended, or after a while."""
    for job in reversed(workflow["jobs"]):
        if job["status"] not in TERMINAL:
            client.job(job["id"], wait_s=_LOOK_S)
            return
    time.sleep(1)


def _progress(workflow: WorkflowDoc) -> str:
    ended = sum(workflow["counts"].get(status, 0) for status in TERMINAL)
    counts = workflow["counts"]
    bad = [f"{counts[status]} {status}" for status in ("failed", "cancelled", "skipped") if counts.get(status)]
    return ", ".join([f"{ended} of {counted(workflow['size'], 'job')} ended", *bad])


def _print_workflow(workflow: WorkflowDoc) -> None:
    counts = ", ".join(f"{count} {status}" for status, count in workflow["counts"].items() if count)
    heading = f"{workflow['id']}  {workflow['status']}" + (f"  {workflow['name']}" if workflow["name"] else "")
    print_card(
        heading,
        f"bold {status_style(workflow['status'])}",
        [
            ("created", moments.clock(workflow["created_at"])),
            ("jobs", f"{workflow['size']}: {counts}"),
            *([("stopped", _stop(workflow))] if workflow["stopped"] else []),
        ],
    )
    print()
    print_table(workflow["jobs"], Format.TABLE, _columns(workflow["jobs"]))
    if workflow["size"] > len(workflow["jobs"]):
        notice(f"all jobs: workron ls --workflow {workflow['id']} --all")


def _stop(workflow: WorkflowDoc) -> str:
    return f"job {workflow['stopped_by']} has failed" if workflow["stopped_by"] else "it was cancelled"


def _columns(jobs: list[JobDoc]) -> list[Column]:
    names = {job["id"]: job["name"] or job["id"] for job in jobs}

    def after(job: JobDoc) -> str:
        rest = job["dependency_count"] - len(job["depends_on"])
        shown = [names.get(parent, parent) for parent in job["depends_on"]]
        return ", ".join([*shown, f"{rest} more"] if rest else shown)

    return [
        Column("NAME", lambda job: job["name"] or "", flexible=True),
        listing.STATUS,
        listing.ENDING,
        listing.TRIES,
        listing.TOOK,
        Column("AFTER", after, rank=2, flexible=True, style=lambda _: "dim"),
        listing.ID,
    ]
