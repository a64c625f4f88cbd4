"""Commands about jobs: submit, ls, show, why, logs, wait."""

import math
import time
from collections.abc import Iterable, Iterator
from typing import Any

import click

from workron.cli.command import command, options
from workron.cli.connect import ApiOptions, api_options, client_for, client_options, locate
from workron.cli.each import Each
from workron.cli.exits import Exit, notice
from workron.cli.job_fields import FILTERS
from workron.cli.lines import submit_lines
from workron.cli.listing import JOBS, OUTCOMES, print_job
from workron.cli.options import (
    COMMAND_FOLLOWS,
    Directory,
    directory_options,
    id_argument,
    ids_argument,
    job_body,
    job_options,
    wait_option,
    words_argument,
)
from workron.cli.render import STATUSES, Format, output_option, print_document, print_table
from workron.cli.stream import OutputSink, await_end, follow
from workron.cli.text import printable
from workron.cli.values import COUNT, DURATION, PAIR, given, merged
from workron.client import Client
from workron.client.documents import JobDoc


@command(
    "workron submit -- rsync -a out/ backup:",
    "workron submit --name nightly --delay 2h --timeout 30m './report | mail -s report me'",
    "workron submit --concurrency customer-7:2 -- ./import customer-7",
    "id=$(workron submit make); workron submit --after $id -- make install",
    "workron submit --after $id:failed './notify'",
    "./generate | workron submit --queue reports --each -",
    context_settings=COMMAND_FOLLOWS,
)
@words_argument(required=False)
@click.option("--each", metavar="FILE", help="submit each line of the file as a shell command, in bulk; - reads stdin")
@job_options
@directory_options
@wait_option
@output_option
@api_options
def submit(
    words: tuple[str, ...],
    each: str | None,
    where: Directory,
    *,
    wait: bool,
    output: Format,
    api: ApiOptions,
    **job: Any,
) -> int:
    """Submit a command; print the id of its job. With --each: a command per line, in bulk."""
    if words and each is not None:
        raise click.BadParameter("takes the place of a command", param_hint="--each")
    if not words and each is None:
        raise click.MissingParameter(param_hint="'COMMAND...'", param_type="argument")
    endpoint = locate(api.url)
    body, key = job_body(job, words, where.chosen(local=endpoint.is_local)), job["idempotency_key"]
    with client_for(endpoint, api) as client:
        if each is not None:
            return _outcome(submit_lines(client, each, body, key, output, wait=wait))
        submitted = client.submit(body, idempotency_key=key)
        if output is Format.TABLE:
            print(submitted["id"], flush=True)
        result = await_end(client, submitted["id"]) if wait else submitted
    if output is not Format.TABLE:
        print_document(result, output, print_job)
    return _outcome([result]) if wait else Exit.OK


@command(
    "workron ls",
    "workron ls --status failed --queue reports",
    "workron ls --name nightly --all -o jsonl | jq -r .id",
)
@click.option(
    "--status",
    type=click.Choice(STATUSES),
    metavar="STATUS",
    help=f"only jobs with this status: {', '.join(STATUSES)}",
)
@click.option("--queue", metavar="NAME", help="only jobs of this queue")
@options(*FILTERS)
@click.option("--workflow", metavar="ID", help="only jobs of this workflow")
@click.option("--array", metavar="ID", help="the tasks of this job's array, in order")
@click.option("--tag", metavar="TEXT", multiple=True, help="only jobs with this tag. May be repeated")
@click.option("--metadata", type=PAIR, multiple=True, help="only jobs with this metadata. May be repeated")
@click.option("--limit", type=COUNT, default=50, show_default=True, help="maximum number")
@click.option("--all", "all_", is_flag=True, help="no limit")
@output_option
@client_options
def ls(
    metadata: tuple[tuple[str, str], ...], *, limit: int, all_: bool, output: Format, client: Client, **filters: Any
) -> None:
    """List jobs, newest first."""
    wanted = given(filters) | {f"metadata.{key}": value for key, value in merged(metadata, "--metadata").items()}
    jobs = client.jobs(limit=None if all_ else limit + 1, **wanted)
    printed = print_table(jobs if all_ else _first(limit, jobs), output, JOBS)
    if not printed:
        notice("no jobs match" if wanted else "no jobs yet")


@command("workron show 01FZpY2zqTkMcXH0Vb8n3R", "workron show -o json ID | jq .exit_code")
@id_argument
@output_option
@client_options
def show(job_id: str, output: Format, client: Client) -> None:
    """Show all details of a job."""
    print_document(client.job(job_id), output, print_job)


@command("workron why 01FZpY2zqTkMcXH0Vb8n3R", "workron why -o json ID | jq .facts")
@id_argument
@output_option
@client_options
def why(job_id: str, output: Format, client: Client) -> None:
    """Explain why a job has its status, and what must happen next."""
    print_document(client.explain(job_id), output, lambda explained: print(printable(explained["sentence"])))


@command("workron logs 01FZpY2zqTkMcXH0Vb8n3R", "workron logs -f $(workron submit make)")
@id_argument
@click.option("--follow", "-f", "follow_", is_flag=True, help="follow the output until the job has ended")
@client_options
def logs(job_id: str, *, follow_: bool, client: Client) -> None:
    """Print the output of a job's latest attempt."""
    with OutputSink() as sink:
        if follow_:
            follow(client, job_id, sink)
        else:
            for chunk in client.output(job_id):
                sink.write(chunk)


@command(
    "workron wait ID1 ID2 && echo both are done",
    "workron ls --status running -o jsonl | jq -r .id | workron wait --timeout 1h -",
)
@ids_argument("ids of jobs")
@click.option("--timeout", type=DURATION, help="stop waiting after 30s, 5m, 2h …")
@output_option
@client_options
def wait(ids: tuple[str, ...], *, timeout: float | None, output: Format, client: Client) -> int:
    """Wait until jobs have ended; the exit code is 0 if all are done."""
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    ended: list[JobDoc] = []

    def wait_for(job_id: str) -> JobDoc:
        ended.append(await_end(client, job_id, deadline=deadline))
        return ended[-1]

    each = Each(ids, wait_for)
    print_table(each, output, OUTCOMES)
    return each.code or _outcome(ended)


def _first(limit: int, jobs: Iterable[JobDoc]) -> Iterator[JobDoc]:
    for index, job in enumerate(jobs):
        if index == limit:
            notice(f"only the first {limit} are listed: see --all and --limit")
            return
        yield job


def _outcome(jobs: Iterable[JobDoc]) -> Exit:
    return Exit.OK if all(job["status"] == "done" for job in jobs) else Exit.JOB_FAILED
