"""The worker's child processes: started in their own group, output read, end noticed, all processes cleaned up."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from typing import Final

from workers.exits import Exits
from workers.output import OutputBuffer
from workers.spawn import Program, file_in_memory, keep_to_oneself, spawn

_READ_BYTES: Final = 64 * 1024
"""Bytes read per loop iteration and command [the size of a pipe], so that a flood of output doesn't block the loop."""
_LAST_READS: Final = 16
"""Maximum of reads after the command's end: a pipe holds up to 1 MiB, and a daemon could keep filling it."""
_YOUNG_S: Final = 0.005
"""A command that ends at this age is read only then [watching its pipe as well cost another 20 µs]."""


class Halted(Exception):
    """No more commands may be started."""


class Launcher:
    """Starts processes, and reads their output continuously once they are older than `_YOUNG_S`, up to twice that."""

    def __init__(self, exits: Exits, halted: Callable[[], bool]) -> None:
        keep_to_oneself()
        self._halted = halted
        self._exits = exits
        self._loop = asyncio.get_running_loop()
        self._nothing = os.open(os.devnull, os.O_RDWR)
        self._young: list[Process] = []
        self._older: list[Process] = []
        self._next_look: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Stop starting processes."""
        if self._next_look is not None:
            self._next_look.cancel()
        os.close(self._nothing)

    def start(self, program: Program, output: OutputBuffer) -> "Process":
        """Start a program; raise OSError or ValueError if that fails, Halted after `halt`."""
        reader, writer = os.pipe()
        try:
            if program.script is None:
                pid = self._spawn(program, self._nothing, writer)
            else:
                with file_in_memory(program.script) as script:
                    pid = self._spawn(program, script.fileno(), writer)
        except BaseException:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        os.set_blocking(reader, False)
        process = Process(self._loop, pid, reader, output)
        try:
            self._exits.watch(pid, process.on_exit)
        except BaseException:  # neither epoll nor a thread is available: its end would go unnoticed
            process.signal_group(signal.SIGKILL)
            process.clean_up()
            process.reap()
            raise
        self._young.append(process)
        if self._next_look is None:
            self._next_look = self._loop.call_later(_YOUNG_S, self._look)
        return process

    def _spawn(self, program: Program, stdin: int, stdout: int) -> int:
        if self._halted():  # at the last moment: a signal may have come while all else was prepared
            raise Halted
        return spawn(program, stdin, stdout)

    def _look(self) -> None:
        for process in self._older:
            process.read_as_it_comes()
        self._older, self._young = self._young, []
        self._next_look = self._loop.call_later(_YOUNG_S, self._look) if self._older else None


class Process:
    """A running program in its own session and process group; its pid is also the group's id.

    Until `reap` the pid is not reused, even after its end, so that signals can't hit another process.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, pid: int, pipe: int, output: OutputBuffer) -> None:
        self.pid = pid
        self._loop = loop
        self._pipe = pipe
        self._output = output
        self._reading = False
        self._reaped = False
        self.exited: asyncio.Future[None] = loop.create_future()
        """Done when the first process has exited, even if others still hold its output."""

    def on_exit(self) -> None:
        """Record that the first process has exited."""
        if not self.exited.done():
            self.exited.set_result(None)

    def read_as_it_comes(self) -> None:
        """Read the output continuously from now on."""
        if self._pipe != -1:
            self._reading = True
            self._loop.add_reader(self._pipe, self._read)

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to every process of the group."""
        if not self._reaped:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def set_oom_score(self, score: bytes) -> None:
        """Set its OOM score; processes it starts from now on inherit it."""
        with contextlib.suppress(OSError):
            file = os.open(f"/proc/{self.pid}/oom_score_adj", os.O_WRONLY)
            try:
                os.write(file, score)
            finally:
                os.close(file)

    def has_exited(self) -> bool:
        """Return whether the first process has exited, even if the loop has not noticed yet."""
        return self.exited.done() or has_exited(self.pid)

    def clean_up(self) -> None:
        """Kill the rest of the group and read its pipe, without waiting for processes that keep it open."""
        self.signal_group(signal.SIGKILL)
        for _ in range(_LAST_READS):
            if self._pipe == -1 or not self._read():
                break
        self._close_pipe()

    def reap(self) -> int | None:
        """Reap the process and return the exit code, negative for a signal; None if it was reaped elsewhere."""
        self._reaped = True
        return reap(self.pid)

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
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._pipe)
        if self._pipe != -1:
            os.close(self._pipe)
            self._pipe = -1


def has_exited(pid: int) -> bool:
    """Return whether this child can be reaped."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    except ChildProcessError:
        return True


def reap(pid: int) -> int | None:
    """Reap an exited child and return its exit code, negative for a signal; None if it was reaped elsewhere."""
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status)
