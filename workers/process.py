"""One child process of the worker: start it in a group of its own, read its output, notice its end, leave nothing."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Thread
from typing import BinaryIO, Final

from workers.output import OutputBuffer

_READ_BYTES: Final = 64 * 1024
"""Read per turn of the loop and command [what a pipe holds]: a flood of output shares the loop with everything else."""
_LAST_READS: Final = 16
"""Reads after the command's end: a pipe holds 1 MiB at most, and a daemon could go on filling it for ever."""


@dataclass(frozen=True, slots=True)
class Program:
    """What to execute. `executable` is searched in the PATH of `env` when it has no slash."""

    executable: bytes
    argv: Sequence[bytes]
    env: Mapping[bytes, bytes]
    cwd: bytes | None = None
    script: bytes | None = None
    """Contents of standard input; without it there is nothing to read."""


class Process:
    """A running program, in a session and process group of its own; its number is also the group's.

    Until `reap` the number belongs to it even after its end, so signals can't hit anybody else.
    """

    def __init__(self, program: Program, output: OutputBuffer) -> None:
        """Start the program; OSError or ValueError if that is impossible."""
        self._loop = asyncio.get_running_loop()
        self._output = output
        self._pipe, self._popen = _spawn(program)
        self.pid = self._popen.pid
        self.exited: asyncio.Future[None] = self._loop.create_future()
        """Done when the first process has exited, whoever may still hold its output."""
        self._loop.add_reader(self._pipe, self._read)
        watch_exit(self.pid, self._on_exit)

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to every process of the group."""
        if self._popen.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def set_oom_score(self, score: bytes) -> None:
        """Tell the kernel how gladly to kill it when memory runs out; what it starts from now on inherits that."""
        with contextlib.suppress(OSError):
            file = os.open(f"/proc/{self.pid}/oom_score_adj", os.O_WRONLY)
            try:
                os.write(file, score)
            finally:
                os.close(file)

    def has_exited(self) -> bool:
        """Tell whether the first process has exited, even if the loop has not noticed yet."""
        return self.exited.done() or has_exited(self.pid)

    def clean_up(self) -> None:
        """Kill what is left of the group and take what its pipe holds now, without waiting for who keeps it open."""
        self.signal_group(signal.SIGKILL)
        for _ in range(_LAST_READS):
            if self._pipe == -1 or not self._read():
                break
        self._close_pipe()

    def reap(self) -> int | None:
        """Release the number and return the exit code, negative for a signal; None if someone else took it."""
        return reap(self._popen)

    def _read(self) -> int:
        try:
            data = os.read(self._pipe, _READ_BYTES)
        except BlockingIOError:
            return 0
        if data:
            self._output.write(data)
        else:
            self._close_pipe()
        return len(data)

    def _close_pipe(self) -> None:
        if self._pipe != -1:
            self._loop.remove_reader(self._pipe)
            os.close(self._pipe)
            self._pipe = -1

    def _on_exit(self) -> None:
        if not self.exited.done():
            self.exited.set_result(None)


def _spawn(program: Program) -> tuple[int, subprocess.Popen[bytes]]:
    """Start the program with one pipe for standard output and error; return the pipe's reading end, too."""
    with ExitStack() as on_failure, ExitStack() as always:
        reader, writer = os.pipe()
        on_failure.callback(os.close, reader)
        always.callback(os.close, writer)
        stdin = subprocess.DEVNULL if program.script is None else always.enter_context(_file(program.script))
        popen = subprocess.Popen(  # noqa: S603 - running what users ask for is the purpose
            program.argv,
            executable=program.executable,
            env=program.env,
            cwd=program.cwd,
            stdin=stdin,
            stdout=writer,
            stderr=writer,
            start_new_session=True,
        )
        on_failure.pop_all()
    os.set_blocking(reader, False)
    return reader, popen


@contextlib.contextmanager
def _file(data: bytes) -> Iterator[BinaryIO]:
    """Open a file with these bytes, at its beginning, that exists in memory only."""
    with open(os.memfd_create("script"), "w+b") as file:
        file.write(data)
        file.seek(0)
        yield file


def watch_exit(pid: int, callback: Callable[[], None]) -> None:
    """Call back in the running loop once this child has exited; it can then be reaped, by the caller."""
    loop = asyncio.get_running_loop()
    try:
        pidfd = os.pidfd_open(pid)
    except (AttributeError, OSError):  # not built in, an old kernel, a strict sandbox, or out of descriptors
        Thread(target=_watch_in_thread, args=(pid, loop, callback), daemon=True).start()
        return

    def exited() -> None:
        loop.remove_reader(pidfd)
        os.close(pidfd)
        callback()

    loop.add_reader(pidfd, exited)


def _watch_in_thread(pid: int, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
        loop.call_soon_threadsafe(callback)


def has_exited(pid: int) -> bool:
    """Tell whether this child waits to be reaped."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    except ChildProcessError:
        return True


def reap(popen: subprocess.Popen[bytes]) -> int | None:
    """Reap an exited child and return its exit code, negative for a signal; None if someone else took it.

    Not `Popen.wait`, which takes that last case for success.
    """
    try:
        _, status = os.waitpid(popen.pid, 0)
    except ChildProcessError:
        popen.returncode = -signal.SIGKILL
        return None
    popen.returncode = os.waitstatus_to_exitcode(status)
    return popen.returncode
