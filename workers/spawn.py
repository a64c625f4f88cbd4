"""Starts a program in its own session, with no inherited files but its standard ones."""

import contextlib
import os
import resource
import signal
import subprocess
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any, BinaryIO, Final, NamedTuple

from workron.runtime.signals import take_defaults

_IGNORED_BY_PYTHON: Final = frozenset({signal.SIGPIPE, signal.SIGXFSZ})
"""Both ways to start a program reset them."""


class Program(NamedTuple):
    """A program to execute. `executable` without a slash is searched in the PATH of `env`."""

    executable: bytes
    argv: tuple[bytes, ...]
    env: Mapping[bytes, bytes]
    cwd: bytes | None = None
    script: bytes | None = None
    """Contents of standard input; without it standard input is empty."""
    mark: int | None = None
    """Its soft limit of real-time CPU time, µs: see `guardian.limit_of`."""


def spawn(program: Program, stdin: int, stdout: int) -> int:
    """Start the program and return its pid; `stdout` also gets stderr. Raise OSError or ValueError if that fails.

    Both have numbers above 2, even in a process without standard files: its event loop opened three before them.
    Files that are not close-on-exec, ignored signals and blocked ones are passed on: see `keep_to_oneself`.
    """
    with marked(program.mark):
        if program.cwd is not None or b"/" not in program.executable:
            return _spawn_slowly(program, stdin, stdout)
        return _spawn(program, stdin, stdout)


@contextlib.contextmanager
def marked(mark: int | None) -> Iterator[None]:
    """Let programs started meanwhile inherit this limit [two calls, 2 µs]; not if root has set one.

    Nor if the system rejects it: a sandbox may lack this limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
    if mark is None or hard != resource.RLIM_INFINITY:
        yield
        return
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_RTTIME, (mark, hard))
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_RTTIME, (soft, hard))


def _spawn(program: Program, stdin: int, stdout: int) -> int:
    return os.posix_spawn(
        program.executable,
        program.argv,
        program.env,
        file_actions=(
            (os.POSIX_SPAWN_DUP2, stdin, 0),
            (os.POSIX_SPAWN_DUP2, stdout, 1),
            (os.POSIX_SPAWN_DUP2, stdout, 2),
        ),
        setsid=True,
        setsigdef=_IGNORED_BY_PYTHON,
    )


def _spawn_slowly(program: Program, stdin: int, stdout: int) -> int:
    """Start it in another directory, or search it first: `posix_spawn` has no directory, and uses only our own PATH."""
    popen = subprocess.Popen(  # noqa: S603 - running what users ask for is the purpose
        program.argv,
        executable=program.executable,
        env=program.env,
        cwd=program.cwd,
        stdin=stdin,
        stdout=stdout,
        stderr=stdout,
        start_new_session=True,
    )
    return take_over(popen)


def take_over(popen: "subprocess.Popen[Any]") -> int:
    """Return the pid of a process that the caller will reap instead of its Popen."""
    popen.returncode = 0
    return popen.pid


def keep_to_oneself() -> None:
    """Pass nothing that this process inherited on to the programs that it starts: no files, no state of signals."""
    _keep_files()
    _keep_signals()


def _keep_files() -> None:
    """Make all inherited files close-on-exec; files opened by Python already are."""
    try:
        files = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:  # not mounted
        files = list(range(os.sysconf("SC_OPEN_MAX")))
    for file in files:
        if file > 2:
            with contextlib.suppress(OSError):  # not open, or not any more: the listing's own
                os.set_inheritable(file, False)


def _keep_signals() -> None:
    """Unblock all signals, and catch those that were ignored: unlike an ignored signal, a caught one is reset by exec.

    A shell ignores HUP for `nohup` and INT for its background jobs, and service managers may block or ignore others.
    """
    take_defaults()
    for number in signal.valid_signals() - _IGNORED_BY_PYTHON:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _ignore)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Catch a signal without any effect."""


@contextlib.contextmanager
def file_in_memory(data: bytes) -> Iterator[BinaryIO]:
    """Open an in-memory file with these bytes, positioned at its beginning."""
    with open(os.memfd_create("script"), "w+b") as file:
        file.write(data)
        file.seek(0)
        yield file
