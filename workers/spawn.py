"""Have the system start a program: with no file of ours but its standard ones, in a session of its own."""

import contextlib
import os
import resource
import signal
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final, NamedTuple

_DEFAULT_SIGNALS: Final = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores them, programs do not expect that."""


class Program(NamedTuple):
    """What to execute. `executable` is searched in the PATH of `env` when it has no slash."""

    executable: bytes
    argv: tuple[bytes, ...]
    env: Mapping[bytes, bytes]
    cwd: bytes | None = None
    script: bytes | None = None
    """Contents of standard input; without it there is nothing to read."""
    mark: int | None = None
    """The soft limit of real-time CPU time that it gets, µs: see `guardian.limit_of`."""


def spawn(program: Program, stdin: int, stdout: int) -> int:
    """Start the program and return its number; `stdout` is for errors too. OSError or ValueError if impossible.

    Both have numbers above 2, even in a process without standard files: its event loop opened three before them.
    All files that are not close-on-exec are passed on: see `keep_to_oneself`.
    """
    with marked(program.mark):
        if program.cwd is not None or b"/" not in program.executable:
            return _spawn_slowly(program, stdin, stdout)
        return _spawn(program, stdin, stdout)


@contextlib.contextmanager
def marked(mark: int | None) -> Iterator[None]:
    """Have what is started meanwhile inherit this limit from us [two calls, 2 µs]; not where root has set one.

    Nor where the system refuses: a sandbox may know no such limit.
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
        setsigdef=_DEFAULT_SIGNALS,
    )


def _spawn_slowly(program: Program, stdin: int, stdout: int) -> int:
    """Start it in another folder, or search it first: `posix_spawn` knows no folder, and only our own PATH."""
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
    """Return the number of a process that the caller is going to reap, not its Popen."""
    popen.returncode = 0
    return popen.pid


def keep_to_oneself() -> None:
    """Have programs inherit none of the files that this process has inherited; those that Python opens they don't."""
    try:
        files = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:  # not mounted
        files = list(range(os.sysconf("SC_OPEN_MAX")))
    for file in files:
        if file > 2:
            with contextlib.suppress(OSError):  # not open, or not any more: the listing's own
                os.set_inheritable(file, False)


@contextlib.contextmanager
def file_in_memory(data: bytes) -> Iterator[BinaryIO]:
    """Open a file with these bytes, at its beginning, that exists in memory only."""
    with open(os.memfd_create("script"), "w+b") as file:
        file.write(data)
        file.seek(0)
        yield file
