"""`workron submit --each`: one job per line of a file or of stdin, in bulk requests."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import IO, Any, Final

from workron.cli.listing import JOBS
from workron.cli.render import Format, print_table
from workron.cli.stream import await_end
from workron.client import Client
from workron.client.documents import JobDoc
from workron.errors import InvalidRequest

_AT_ONCE: Final = 1000
"""Jobs per request, which is stored all or nothing."""


def submit_lines(
    client: Client, path: str, job: Mapping[str, Any], key: str | None, output: Format, *, wait: bool
) -> list[JobDoc]:
    """Submit a job with these fields for each line that is not empty; return the ended jobs if it waits for them.

    With an idempotency key each request has one of its own: the same lines give the same jobs.
    """
    jobs = _submitted(client, path, job, key)
    if output is Format.TABLE:
        jobs = _told(jobs)
    ended = [await_end(client, job["id"]) for job in list(jobs)] if wait else []
    if output is not Format.TABLE:
        print_table(ended if wait else jobs, output, JOBS)
    for _ in jobs:
        pass
    return ended


def _submitted(client: Client, path: str, job: Mapping[str, Any], key: str | None) -> Iterator[JobDoc]:
    with _opened(path) as file:
        commands = (line for text in file if (line := text.rstrip("\r\n")).strip())
        for number, some in enumerate(iter(lambda: list(islice(commands, _AT_ONCE)), []), 1):
            jobs = [{**job, "command": command} for command in some]
            yield from client.submit_bulk(jobs, idempotency_key=f"{key}-{number}" if key else None)


def _told(jobs: Iterator[JobDoc]) -> Iterator[JobDoc]:
    for job in jobs:
        print(job["id"])
        yield job


@contextmanager
def _opened(path: str) -> Iterator[IO[str]]:
    """Open a file, or stdin for `-`."""
    try:
        with open(sys.stdin.fileno() if path == "-" else path, encoding="utf-8", closefd=path != "-") as file:
            yield file
    except UnicodeError as error:
        raise InvalidRequest(f"{path} is not UTF-8 text: {error}") from None
    except OSError as error:
        raise InvalidRequest(f"can't read {path}: {(error.strerror or '').lower()}") from None
