"""Following a job: wait for its end, copy its output as it is written."""

import math
import sys
import time
from types import TracebackType
from typing import Final, Self

from workron.cli.exits import CliError, Exit
from workron.cli.text import TerminalFilter
from workron.client import Client
from workron.client.documents import JobDoc

TERMINAL: Final = frozenset({"done", "failed", "cancelled", "skipped"})
FROM_THE_BEGINNING: Final = "0:0"
"""The position before all stored output of a job."""
_LONG_POLL_S: Final = 30.0
_PACE_S: Final = 1.0
"""Minimum interval between the starts of two streams."""
_RESET: Final = b"\x1b[0m"


class OutputSink:
    """Stdout for the output of commands; on a terminal, only colours of its control sequences are kept."""

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


def await_end(client: Client, job_id: str, *, deadline: float = math.inf) -> JobDoc:
    """Return the job once it has ended; raise CliError after `deadline` on the monotonic clock."""
    while True:
        left_s = max(0.0, deadline - time.monotonic())
        job = client.job(job_id, wait_s=min(_LONG_POLL_S, left_s))
        if job["status"] in TERMINAL:
            return job
        if not left_s:
            raise CliError(f"timed out: {job_id} is still {job['status']}", Exit.TIME_IS_UP)
        client.persist(left_s)


def follow(client: Client, job_id: str, sink: OutputSink, position: str | None = None) -> JobDoc:
    """Copy output as it is written, from a position on; return the job once it has ended and all was copied.

    Without a position it begins with the latest attempt. A broken stream (the API stops, the
    connection breaks or is silent for long) is reopened at the last position.
    """
    client.job(job_id)
    client.persist()
    while True:
        again_at_s, ended = time.monotonic() + _PACE_S, False
        for event in client.follow_output(job_id, position):
            sink.write(event.data)
            position, ended = event.position or position, event.ended
        if ended and (job := client.job(job_id))["status"] in TERMINAL:
            return job  # otherwise it has just been retried
        time.sleep(max(0.0, again_at_s - time.monotonic()))
