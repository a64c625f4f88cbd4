"""Commands about jobs: submit, ls, show, logs, wait, cancel, retry, rm."""

import math
import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Annotated

import typer

from workron.cli.bulk import BulkOptions, order
from workron.cli.command import spread
from workron.cli.connect import ApiOptions, client_for, connect, locate
from workron.cli.each import Each
from workron.cli.exits import Exit, notice
from workron.cli.listing import JOBS, OUTCOMES, print_job
from workron.cli.options import DirectoryOptions, Id, Ids, JobOptions, SomeIds, Words, seconds
from workron.cli.render import Format, FormatOption, print_document, print_table
from workron.cli.stream import OutputSink, await_end, follow
from workron.cli.text import printable
from workron.client.documents import JobDoc
from workron.models import Status

TasksOption = Annotated[
    str | None, typer.Option("--tasks", metavar="0-9,20", help="only the tasks of an array with these indexes")
]
_STATUS_HELP = f"only jobs with this status: {', '.join(Status)}"


@spread
def submit(
    words: Words,
    job: JobOptions,
    where: DirectoryOptions,
    *,
    wait: Annotated[bool, typer.Option("--wait", help="wait until it has ended; the exit code is the result")] = False,
    output: FormatOption = Format.TABLE,
    api: ApiOptions,
) -> int:
    """Submit a command; print the id of its job."""
    endpoint = locate(api.url)
    body = job.body(words, where.chosen(local=endpoint.is_local))
    with client_for(endpoint, api) as client:
        submitted = client.submit(body, idempotency_key=job.idempotency_key)
        if output is Format.TABLE:
            print(submitted["id"], flush=True)
        result = await_end(client, submitted["id"]) if wait else submitted
    if output is not Format.TABLE:
        print_document(result, output, print_job)
    return _outcome([result]) if wait else Exit.OK


@spread
def ls(
    *,
    status: Annotated[Status | None, typer.Option(metavar="STATUS", help=_STATUS_HELP)] = None,
    queue: Annotated[str | None, typer.Option(metavar="NAME", help="only jobs of this queue")] = None,
    name: Annotated[str | None, typer.Option(metavar="TEXT", help="only jobs with this name")] = None,
    workflow: Annotated[str | None, typer.Option(metavar="ID", help="only jobs of this workflow")] = None,
    array: Annotated[str | None, typer.Option(metavar="ID", help="the tasks of this job's array, in order")] = None,
    tag: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="only jobs with this tag. May be repeated")
    ] = None,
    metadata: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="only jobs with this metadata. May be repeated")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", help="maximum number", show_default=True)] = 50,
    all_: Annotated[bool, typer.Option("--all", help="no limit")] = False,
    output: FormatOption = Format.TABLE,
    api: ApiOptions,
) -> None:
    """List jobs, newest first."""
    if limit < 1:
        raise typer.BadParameter("must be at least 1", param_hint="--limit")
    about = _metadata(metadata or ())
    with connect(api) as client:
        filters = {
            "status": status,
            "queue": queue,
            "name": name,
            "workflow": workflow,
            "array": array,
            "tag": tag,
            **about,
        }
        jobs = client.jobs(limit=None if all_ else limit + 1, **filters)
        printed = print_table(jobs if all_ else _first(limit, jobs), output, JOBS)
    if not printed:
        notice("no jobs match" if any(filters.values()) else "no jobs yet")


@spread
def show(job_id: Id, *, output: FormatOption = Format.TABLE, api: ApiOptions) -> None:
    """Show all details of a job."""
    with connect(api) as client:
        print_document(client.job(job_id), output, print_job)


@spread
def why(job_id: Id, *, output: FormatOption = Format.TABLE, api: ApiOptions) -> None:
    """Explain why a job has its status, and what must happen next."""
    with connect(api) as client:
        print_document(client.explain(job_id), output, lambda explained: print(printable(explained["sentence"])))


@spread
def logs(
    job_id: Id,
    *,
    follow_: Annotated[bool, typer.Option("--follow", "-f", help="follow the output until the job has ended")] = False,
    api: ApiOptions,
) -> None:
    """Print the output of a job's latest attempt."""
    with connect(api) as client, OutputSink() as sink:
        if follow_:
            follow(client, job_id, sink)
        else:
            for chunk in client.output(job_id):
                sink.write(chunk)


@spread
def wait(
    ids: Ids,
    *,
    timeout: Annotated[str | None, typer.Option(metavar="TIME", help="stop waiting after 30s, 5m, 2h …")] = None,
    output: FormatOption = Format.TABLE,
    api: ApiOptions,
) -> int:
    """Wait until jobs have ended; the exit code is 0 if all are done."""
    limit_s = seconds("--timeout", timeout)
    deadline = math.inf if limit_s is None else time.monotonic() + limit_s
    ended: list[JobDoc] = []

    def wait_for(job_id: str) -> JobDoc:
        ended.append(await_end(client, job_id, deadline=deadline))
        return ended[-1]

    with connect(api) as client:
        each = Each(ids, wait_for)
        print_table(each, output, OUTCOMES)
    return each.code or _outcome(ended)


@spread
def cancel(
    ids: SomeIds = None,
    *,
    bulk: BulkOptions,
    tasks: TasksOption = None,
    cascade: Annotated[bool, typer.Option("--cascade", help="also cancel all jobs that depend on them")] = False,
    output: FormatOption = Format.TABLE,
    api: ApiOptions,
) -> int:
    """Cancel jobs; running commands are stopped. With filters and --all: all matching jobs, in the background."""
    body = bulk.body_or_ids("cancel", ids, {"--tasks": tasks, "--cascade": cascade}, waits=True)
    with connect(api) as client:
        if body is not None:
            return order(client, body, output, wait=bulk.wait)
        each = Each(ids or (), partial(client.cancel, tasks=tasks, cascade=cascade))
        cancelled = list(each) if bulk.wait else each  # stop all before waiting for the first one
        print_table((await_end(client, job["id"]) if bulk.wait else job for job in cancelled), output, OUTCOMES)
    return each.code


@spread
def retry(
    ids: SomeIds = None,
    *,
    bulk: BulkOptions,
    tasks: TasksOption = None,
    output: FormatOption = Format.TABLE,
    api: ApiOptions,
) -> int:
    """Run ended jobs again. With filters and --all: all matching jobs, in the background."""
    body = bulk.body_or_ids("retry", ids, {"--tasks": tasks})
    with connect(api) as client:
        if body is not None:
            return order(client, body, output, wait=bulk.wait)
        each = Each(ids or (), partial(client.retry, tasks=tasks))
        print_table(each, output, OUTCOMES)
    return each.code


@spread
def remove(ids: SomeIds = None, *, bulk: BulkOptions, output: FormatOption = Format.TABLE, api: ApiOptions) -> int:
    """Delete finished jobs with their output. With filters and --all: all matching jobs, in the background."""
    body = bulk.body_or_ids("delete", ids)
    with connect(api) as client:
        if body is not None:
            return order(client, body, output, wait=bulk.wait)
        each = Each(ids or (), client.delete)
        for _ in each:
            pass
    return each.code


def _metadata(items: Iterable[str]) -> dict[str, str]:
    pairs = [item.partition("=") for item in items]
    if not all(equals for _, equals, _ in pairs):
        raise typer.BadParameter("write it like KEY=VALUE", param_hint="--metadata")
    return {f"metadata.{key}": value for key, _, value in pairs}


def _first(limit: int, jobs: Iterable[JobDoc]) -> Iterator[JobDoc]:
    for index, job in enumerate(jobs):
        if index == limit:
            notice(f"only the first {limit} are listed: see --all and --limit")
            return
        yield job


def _outcome(jobs: Iterable[JobDoc]) -> Exit:
    return Exit.OK if all(job["status"] == Status.DONE for job in jobs) else Exit.JOB_FAILED
