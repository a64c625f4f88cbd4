"""`workron run`: run a command on a worker as if it ran locally."""

import sys
from typing import Any

from workron.cli.command import command
from workron.cli.connect import ApiOptions, api_options, client_for, locate
from workron.cli.exits import Exit, complain, notice
from workron.cli.listing import ending
from workron.cli.options import (
    COMMAND_FOLLOWS,
    Directory,
    directory_options,
    job_body,
    job_options,
    words_argument,
)
from workron.cli.stream import FROM_THE_BEGINNING, OutputSink, follow
from workron.client import Client
from workron.client.documents import JobDoc
from workron.errors import WorkronError

_ATTEMPTS = 1
"""One attempt, as the user sees a failure and decides; `--max-attempts` overrides it."""
_SIGNALLED = 128


@command(
    "workron run -- make test",
    "workron run 'make test 2>&1 | tee log'      # one argument: through the shell",
    "workron run --timeout 10m --env CC=clang -- make -j4",
    context_settings=COMMAND_FOLLOWS,
)
@words_argument(required=True)
@job_options
@directory_options
@api_options
def run(words: tuple[str, ...], where: Directory, api: ApiOptions, **job: Any) -> int:
    """Submit a command, stream its output and leave with its exit code.

    A command killed by a signal gives 128 + the signal's number. Without an exit code (workron failed, the
    worker died, the job was cancelled before it started …) it is 125. Ctrl-C leaves the job running. The job has
    one attempt unless --max-attempts is given.
    """
    try:
        endpoint = locate(api.url)
        cwd = where.chosen(local=endpoint.is_local)
        body = {"max_attempts": _ATTEMPTS, **job_body(job, words, cwd)}
        with client_for(endpoint, api) as client:
            submitted = client.submit(body, idempotency_key=job["idempotency_key"])
            return _follow(client, submitted["id"])
    except WorkronError as error:
        complain(error)
        return Exit.NO_EXIT_CODE


def _follow(client: Client, job_id: str) -> int:
    if sys.stderr.isatty():
        notice(f"job {job_id}")
    try:
        with OutputSink() as sink:
            return _exit_code(follow(client, job_id, sink, FROM_THE_BEGINNING))
    except KeyboardInterrupt:
        notice(
            f"detached, the job keeps running. Follow it: workron logs -f {job_id}; stop it: workron cancel {job_id}"
        )
        return Exit.INTERRUPTED


def _exit_code(job: JobDoc) -> int:
    code = job["exit_code"]
    if code is not None and (code or job["status"] == "done"):
        return code
    if job["signal"] is not None:
        notice(f"job {job['id']} {job['status']}: {ending(job)}")
        return _SIGNALLED + job["signal"]
    notice(f"job {job['id']} {job['status']}: {job['error'] or ending(job)}")
    return Exit.NO_EXIT_CODE
