"""The guardian: a small process for each worker that kills commands when the worker no longer can.

    python -I -S guardian.py TOKEN [FOLDER] < pipe > ready

It reads lines from the pipe and acts in two cases: the pipe ends, so the worker is gone, and all its commands are
killed; or the deadline of an attempt passes, so the worker is suspended or cut off, and that attempt is killed.

    begin FENCE DEADLINE        an attempt is about to start; DEADLINE in seconds of CLOCK_BOOTTIME
    group FENCE PGID            it runs in this process group
    renew DEADLINE FENCE …      new deadline for these attempts
    end FENCE                   it has ended; written before its first process is reaped
    sweep FENCE                 the same; other processes it left are killed at once, not within about a second

Killed are the process group and every process that has the marks of the attempt: a command between its start and
`group`, or a daemon that left the group. Marks are WORKRON_GUARD=TOKEN and WORKRON_FENCE in the environment, or the
soft limit of real-time CPU time (RLIMIT_RTTIME), a number that encodes both. No process reaches that limit, and it
survives a clean environment and exec; only a process that sets another limit escapes. When the worker is gone,
FOLDER (the files of its commands, see `command_files.py`) is removed.

Why a process group's number is safe to use: it can't be reused before the group's first process is
reaped, and the worker writes `end` before it reaps. All lines are read before anything is killed. A
number that becomes free in between is not reused before all others have been.

Only the standard library is imported, so that it starts in milliseconds and stays small.
"""

import contextlib
import math
import os
import select
import signal
import sys
import time
import zlib
from collections.abc import Collection, Iterable
from typing import Final

GUARD_VARIABLE: Final = "WORKRON_GUARD"
FENCE_VARIABLE: Final = "WORKRON_FENCE"
_LIMIT: Final = b"Max realtime timeout"

GATHER_S: Final = 0.05
"""Interval of reading batches of lines: a worker may start thousands of commands a second."""
LOOK_AGAIN_S: Final = 1.0
"""Longest sleep while there are attempts [poll's clock stands still in suspend, deadlines don't], and how often an
attempt past its deadline is searched for again."""
SWEEP_EVERY_S: Final = 1.0
SWEEP_SHARE: Final = 50
"""Processes left by ended attempts are searched at most once a second, with at most 2 % of a core."""
ROUND_S: Final = 0.01
ROUNDS: Final = 50
"""Marked processes are killed until none is found: one may fork while the list is being read."""


def boottime_s() -> float:
    """Return seconds on a clock shared with the worker, which includes suspend."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def limit_of(token: str, fence: int) -> int:
    """Return the soft RLIMIT_RTTIME, in µs, that marks an attempt's processes: thousands of years."""
    return 1 << 62 | (zlib.crc32(token.encode()) & 0xFFFFF) << 42 | fence & (1 << 42) - 1


class Marks:
    """By what the processes of some attempts are known, except their worker: it bears the limit while it starts one."""

    def __init__(self, token: str, fences: Iterable[int], worker: int = 0) -> None:
        fences = list(fences)
        self._worker = worker
        self._guard = f"{GUARD_VARIABLE}={token}".encode()
        self._fences = {f"{FENCE_VARIABLE}={fence}".encode() for fence in fences}
        self._limits = {b"%d" % limit_of(token, fence) for fence in fences}

    def are_on(self, pid: int) -> bool:
        if pid == self._worker:
            return False
        return self._in_environment(_read(pid, "environ")) or self._is_limit(_read(pid, "limits"))

    def _in_environment(self, environ: bytes) -> bool:
        return self._guard in environ and not self._fences.isdisjoint(environ.split(b"\0"))

    def _is_limit(self, limits: bytes) -> bool:
        _, _, line = limits.partition(_LIMIT)
        return not self._limits.isdisjoint(line.split(None, 1)[:1])


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""


class Held:
    """An attempt: the end of its lease, and its process group while known and not killed."""

    __slots__ = ("deadline", "expired", "group")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.group: int | None = None
        self.expired = False


class Guardian:
    """The attempts of one worker, as read from the pipe."""

    def __init__(self, pipe: int, token: str) -> None:
        self._pipe = pipe
        self._token = token
        self._worker = os.getppid()
        self._held: dict[int, Held] = {}
        self._swept: set[int] = set()
        self._ended: set[int] = set()
        """Ended attempts whose left processes were not searched yet."""
        self._sweep_at_s = 0.0
        self._rest = b""
        self._readable = select.poll()
        self._readable.register(pipe, select.POLLIN)
        self._hangup = select.poll()
        self._hangup.register(pipe, 0)

    def run(self) -> None:
        """Watch the worker until it is gone, then kill its commands."""
        connected = True
        while connected:
            self._wait()
            # The clock first, then the pipe: a renewal that the worker wrote in time is then always seen in time.
            now = boottime_s()
            connected = self._receive()
            self._sweep(now)
            self._expire(now)
        self._kill(self._held.keys() | self._swept | self._ended)

    def _sweep(self, now: float) -> None:
        if self._ended and now >= self._sweep_at_s:
            began_s = time.process_time()
            self._kill_left(frozenset(self._ended))
            took_s = time.process_time() - began_s
            self._sweep_at_s = now + max(SWEEP_EVERY_S, SWEEP_SHARE * took_s)
        self._kill(self._swept)
        self._swept.clear()

    def _kill_left(self, ended: frozenset[int]) -> None:
        """Kill processes left by ended attempts, except attempts that have begun again."""
        for _ in range(ROUNDS):
            found = find_marked(Marks(self._token, ended, self._worker))
            if not found:
                break
            self._receive()
            marks = Marks(self._token, ended & self._ended, self._worker)
            if not sum(kill_if_marked(pid, marks) for pid in found):
                break
            time.sleep(ROUND_S)
        self._ended -= ended

    def _wait(self) -> None:
        waits_for_time = self._held or self._ended
        events = self._readable.poll(self._timeout_ms(LOOK_AGAIN_S) if waits_for_time else None)
        if events and not events[0][1] & select.POLLHUP:
            self._hangup.poll(self._timeout_ms(GATHER_S))

    def _timeout_ms(self, longest_s: float) -> int:
        now = boottime_s()
        until_s = min((held.deadline - now for held in self._held.values()), default=longest_s)
        if self._ended:
            until_s = min(until_s, self._sweep_at_s - now)
        return math.ceil(max(0.0, min(until_s, longest_s)) * 1000)

    def _receive(self) -> bool:
        """Read all available lines; return False when the worker's end is closed."""
        while True:
            try:
                data = os.read(self._pipe, 1 << 20)
            except BlockingIOError:
                return True
            if not data:
                return False
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._obey(line.split())

    def _obey(self, words: list[bytes]) -> None:
        match words:
            case b"begin", fence, deadline:
                self._held[int(fence)] = Held(float(deadline))
                self._ended.discard(int(fence))
            case b"group", fence, group:
                self._held[int(fence)].group = int(group)
            case b"renew", deadline, *fences:
                self._renew(map(int, fences), float(deadline))
            case b"end", fence:
                self._held.pop(int(fence), None)
                self._ended.add(int(fence))
            case b"sweep", fence:
                self._held.pop(int(fence), None)
                self._swept.add(int(fence))

    def _renew(self, fences: Iterable[int], deadline: float) -> None:
        for fence in fences:
            held = self._held.get(fence)
            if held is not None and not held.expired:
                held.deadline = deadline

    def _expire(self, now: float) -> None:
        """Kill the attempts past their deadline, repeatedly until the worker reports their end.

        A worker suspended between `begin` and the start of the command starts it when it is resumed.
        """
        expired = [fence for fence, held in self._held.items() if held.deadline <= now]
        self._kill(expired)
        for fence in expired:
            held = self._held[fence]
            held.expired = True
            held.deadline = now + LOOK_AGAIN_S

    def _kill(self, fences: Collection[int]) -> None:
        if not fences:
            return
        for fence in fences:
            held = self._held.get(fence)
            if held is not None and held.group is not None:
                kill_group(held.group)
                held.group = None
        marks = Marks(self._token, fences, self._worker)
        for _ in range(ROUNDS):
            if not sum(kill_if_marked(pid, marks) for pid in find_marked(marks)):
                break
            time.sleep(ROUND_S)


def kill_group(group: int) -> None:
    """Kill a process group, its first process first: it must not see the others die and report that as its own end."""
    with contextlib.suppress(OSError):
        os.kill(group, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.killpg(group, signal.SIGKILL)


def find_marked(marks: Marks) -> list[int]:
    """Return the processes that have the marks."""
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:  # not mounted
        return []
    return [pid for pid in pids if marks.are_on(pid)]


def kill_if_marked(pid: int, marks: Marks) -> bool:
    """Kill the process if it is still the one found: the pidfd keeps it while its marks are read."""
    with contextlib.suppress(OSError):
        pidfd = os.pidfd_open(pid)
        try:
            if marks.are_on(pid):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                return True
        finally:
            os.close(pidfd)
    return False


def remove(folder: str) -> None:
    """Remove a folder with its contents, as far as possible; links are not followed."""
    for path, folders, files in os.walk(folder, topdown=False):
        for name in files:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(path, name))
        for name in folders:
            with contextlib.suppress(OSError):
                inner = os.path.join(path, name)
                os.unlink(inner) if os.path.islink(inner) else os.rmdir(inner)
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def main(token: str, folder: str | None = None) -> None:
    """Run with the pipe as standard input; report on standard output when it is ready."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.set_blocking(0, False)
    os.write(1, b"ready\n")
    os.close(1)
    Guardian(0, token).run()
    if folder is not None:
        remove(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
