"""Staying with a job: wait for its end, pass its output on as it comes."""

import math
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from workron.cli.exits import CliError, Exit
from workron.cli.text import TerminalFilter
from workron.documents import JobDoc

if TYPE_CHECKING:
    from workron.client import Client

TERMINAL: Final = frozenset({"done", "failed", "cancelled", "skipped"})
_LONG_POLL_S: Final = 30.0
_PACE_S: Final = 1.0
"""Least time between two streams of a job that goes on."""
_RESET: Final = b"\x1b[0m"


class OutputSink:
    """Stdout for the output of commands; on a terminal it may colour and print, but not steer."""

    def __init__(self) -> None:
        self._filter = TerminalFilter() if sys.stdout.isatty() else None
        self._coloured = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._coloured and not isinstance(error, BrokenPipeError):
            sys.stdout.buffer.write(_RESET)
            sys.stdout.buffer.flush()

    def write(self, data: bytes) -> None:
        if self._filter:
            data = self._filter.feed(data)
            self._coloured = self._coloured or b"\x1b" in data
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def await_end(client: "Client", job_id: str, *, deadline: float = math.inf) -> JobDoc:
    """Return the job once it has ended; CliError if `deadline`, on the monotonic clock, comes first."""
    while True:
        left_s = max(0.0, deadline - time.monotonic())
        job = client.job(job_id, wait_s=min(_LONG_POLL_S, left_s))
        if job["status"] in TERMINAL:
            return job
        if not left_s:
            raise CliError(f"time is up: {job_id} is still {job['status']}", Exit.TIME_IS_UP)
        client.persist(left_s)


def follow(client: "Client", job_id: str, sink: OutputSink) -> JobDoc:
    """Pass on the output of all attempts from now on as it comes; return the job once it has ended.

    A stream ends early when the API stops or the connection breaks. The next one goes on where the attempt's
    output was left, or begins anew when another attempt has begun meanwhile.
    """
    job = client.job(job_id)
    client.persist()
    attempt, position = _attempt(job), 0
    while True:
        for chunk in client.output(job_id, offset=position, follow=True):
            sink.write(chunk)
            position += len(chunk)
        job = client.job(job_id, wait_s=_PACE_S)
        if job["status"] in TERMINAL:
            return job
        if _attempt(job) != attempt:
            attempt, position = _attempt(job), 0


def _attempt(job: JobDoc) -> int:
    """Return the attempt whose output is the latest: before the first one has begun, the first."""
    return max(1, job["attempts"])
