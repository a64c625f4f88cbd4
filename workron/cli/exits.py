"""Exit codes, and the one place that maps errors to an exit code and a line on stderr."""

import os
import sys
from contextlib import suppress
from enum import IntEnum

from workron.cli.text import printable
from workron.errors import (
    ApiProblem,
    ApiUnreachable,
    Conflict,
    InvalidRequest,
    NotFound,
    SettingsError,
    StartupError,
    StoreUnavailable,
    StoreUnsuitable,
    WorkronError,
)


class Exit(IntEnum):
    """Exit codes of all commands. The numbers are stable."""

    OK = 0
    JOB_FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNREACHABLE = 5
    REFUSED = 6
    NOTHING_RUNS = 7
    CANNOT_START = 8
    UNEXPECTED = 9
    QUEUE_FULL = 10
    TIME_IS_UP = 124
    NO_EXIT_CODE = 125
    INTERRUPTED = 130
    BROKEN_PIPE = 141


MEANING = {
    Exit.OK: "success; all awaited jobs are done",
    Exit.JOB_FAILED: "a job failed, was cancelled or skipped; a worker was lost while draining; `doctor` found faults",
    Exit.USAGE: "invalid usage, setting or request",
    Exit.NOT_FOUND: "no such job, workflow or worker",
    Exit.CONFLICT: "conflict with the state of the job",
    Exit.UNREACHABLE: "the API, or the Redis behind it, can't be reached",
    Exit.REFUSED: "the API rejected the key",
    Exit.NOTHING_RUNS: "no URL given and no instance on this machine",
    Exit.CANNOT_START: "up, api, worker or reaper can't start",
    Exit.UNEXPECTED: "the API answered something unexpected, or the output can't be written",
    Exit.QUEUE_FULL: "the queue or Redis' memory is full and `--no-wait` is given; or a submission "
    "is larger than the limit",
    Exit.TIME_IS_UP: "`wait --timeout`: timed out",
    Exit.NO_EXIT_CODE: "`run`: workron failed, or the job ended without an exit code of its own",
    Exit.INTERRUPTED: "interrupted by Ctrl-C; `run` and `wait` leave the job as it is",
    Exit.BROKEN_PIPE: "the reader of the output closed the pipe",
}

_BY_KIND = (
    (SettingsError, Exit.USAGE),
    (StartupError, Exit.CANNOT_START),
    (StoreUnsuitable, Exit.CANNOT_START),
    (StoreUnavailable, Exit.UNREACHABLE),
    (ApiUnreachable, Exit.UNREACHABLE),
    (InvalidRequest, Exit.USAGE),
    (NotFound, Exit.NOT_FOUND),
    (Conflict, Exit.CONFLICT),
)
_BY_STATUS = {
    401: Exit.REFUSED,
    403: Exit.REFUSED,
    404: Exit.NOT_FOUND,
    410: Exit.NOT_FOUND,
    409: Exit.CONFLICT,
    503: Exit.UNREACHABLE,
}


class CliError(WorkronError):
    """An error found by the command line itself, with its exit code."""

    def __init__(self, message: str, code: Exit) -> None:
        super().__init__(message)
        self.code = code


def code_of(error: WorkronError) -> Exit:
    """Return the exit code for an error."""
    if isinstance(error, CliError):
        return error.code
    if isinstance(error, ApiProblem):
        if not error.slug:  # whatever it is that answers there, it is no Workron API
            return Exit.UNEXPECTED
        if error.slug in {"queue-full", "store-full"}:
            return Exit.QUEUE_FULL
        return _BY_STATUS.get(error.status, Exit.USAGE if 400 <= error.status < 500 else Exit.UNEXPECTED)
    return next((code for kind, code in _BY_KIND if isinstance(error, kind)), Exit.UNEXPECTED)


def notice(message: str) -> None:
    """Print a notice on stderr, after all that stdout has: they may be one file. Never fail."""
    with suppress(OSError):  # it is reported at the end
        sys.stdout.flush()
    try:
        print(f"workron: {printable(message)}", file=sys.stderr, flush=True)
    except OSError:
        silence(sys.stderr.fileno())


def complain(error: WorkronError) -> Exit:
    """Print one line about the error on stderr and return its exit code."""
    notice(str(error))
    return code_of(error)


def silence(descriptor: int) -> None:
    """Redirect a closed stream to /dev/null, so that the flush at exit is quiet too."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
