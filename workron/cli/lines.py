"""`workron submit --each`: one job per line of a file or of stdin, in bulk requests."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, Final

from workron.cli.listing import JOBS
from workron.cli.render import Format, print_table
from workron.cli.stream import await_end
from workron.client import Client
from workron.client.documents import JobDoc
from workron.errors import InvalidRequest

_AT_ONCE: Final = 1000
"""Maximum number of jobs per request, which is stored all or nothing."""
_CHARACTERS_AT_ONCE: Final = 4_000_000
"""Maximum size of a request of several jobs; as JSON, six bytes each, it is still below the default of --max-body."""


def submit_lines(
    client: Client, path: str, job: Mapping[str, Any], key: str | None, output: Format, *, wait: bool
) -> list[JobDoc]:
    """Submit a job with these fields for each line that is not empty; return the ended jobs if it waits for them.

    With an idempotency key each request has one of its own: the same lines give the same jobs. If a request fails, or
    the user interrupts, the jobs of the earlier requests are printed all the same.
    """
    at_once = output is Format.TABLE or (output is Format.JSONL and not wait)
    known: list[JobDoc] = []
    try:
        for stored in _submitted(client, path, job, key):
            if output is Format.TABLE:
                print(stored["id"])
            elif at_once:
                print_table([stored], output, JOBS)
            if wait or output is Format.JSON:
                known.append(stored)
        if wait:
            for index, stored in enumerate(known):
                known[index] = await_end(client, stored["id"])
    except BaseException:
        if known and not at_once:
            print_table(known, output, JOBS)
        raise
    if not at_once:
        print_table(known, output, JOBS)
    return known if wait else []


def _submitted(client: Client, path: str, job: Mapping[str, Any], key: str | None) -> Iterator[JobDoc]:
    with _opened(path) as file:
        commands = (line for text in file if (line := text.removesuffix("\n").removesuffix("\r")).strip())
        for number, some in enumerate(_requests(commands, len(json.dumps(job))), 1):
            jobs = [{**job, "command": command} for command in some]
            yield from client.submit_bulk(jobs, idempotency_key=f"{key}-{number}" if key else None)


def _requests(commands: Iterable[str], size_of_rest: int) -> Iterator[list[str]]:
    """Yield the commands of each request; `size_of_rest` is what each job needs in addition to its command."""
    some: list[str] = []
    size = 0
    for command in commands:
        size += len(command) + size_of_rest
        if some and (len(some) == _AT_ONCE or size > _CHARACTERS_AT_ONCE):
            yield some
            some, size = [], len(command) + size_of_rest
        some.append(command)
    if some:
        yield some


@contextmanager
def _opened(path: str) -> Iterator[IO[str]]:
    """Open a file, or stdin for `-`; a byte order mark is no part of the first line."""
    source = sys.stdin.fileno() if path == "-" else path
    try:
        with open(source, encoding="utf-8-sig", newline="\n", closefd=path != "-") as file:
            yield file
    except UnicodeError as error:
        raise InvalidRequest(f"{path} is not UTF-8 text: {error}") from None
    except OSError as error:
        raise InvalidRequest(f"can't read {path}: {(error.strerror or '').lower()}") from None
