"""The worker's side of its guardian: starts it, reports attempts to it, replaces it when it dies."""

import asyncio
import os
import resource
import secrets
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from workers.exits import Exits
from workers.guardian import Held
from workers.process import reap
from workers.spawn import marked, take_over
from workron.errors import StartupError
from workron.runtime.logger import log

_PROGRAM: Final = Path(__file__).with_name("guardian.py")
_PASSED_ON: Final = ("PATH", "LD_LIBRARY_PATH")
"""All of the environment that the guardian gets: it must not look like a command of an outer worker. So it gets no
limit that marks one either."""
_RESTART_DELAYS_S: Final = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0)
_HEALTHY_S: Final = 10.0
"""A guardian that lived for this long resets the restart delay."""
_START_S: Final = 20.0
_STUCK_S: Final = 5.0
"""A guardian that has not caught up with reading for so long is replaced."""
_LATELY: Final = 1000
"""Ended attempts of which a new guardian looks for what they left: the one before may not have done so."""


class GuardianLink:
    """The guardian process of this worker.

    Between `begin` and `end` of an attempt it kills the attempt's command when the deadline passes or when this
    process dies. Lines are written without waiting, several `begin` lines at once; it reads them in batches.
    """

    def __init__(self) -> None:
        self.token = secrets.token_hex(16)
        """Set in the environment of every command of this worker, so that the guardian recognizes them."""
        self.up = asyncio.Event()
        """Set while a guardian is up to date. Without one no command may be started."""
        self.pid: int | None = None
        """The current guardian process."""
        self._loop: asyncio.AbstractEventLoop
        self._exits: Exits
        self._folder: str | None = None
        self._held: dict[int, Held] = {}
        self._lately: deque[int] = deque(maxlen=_LATELY)
        """Fences of attempts that have ended."""
        self._pipe = -1
        self._ready = -1
        self._listening = False
        self._unwritten = bytearray()
        self._stuck: asyncio.TimerHandle | None = None
        self._started_at_s = 0.0
        self._failures = 0
        self._closing = False
        self._gone = asyncio.Event()

    async def start(self, exits: Exits, folder: str | None = None) -> None:
        """Start the guardian process; raise StartupError if that fails. It removes the folder if we can't."""
        self._folder = folder
        self._loop = asyncio.get_running_loop()
        self._exits = exits
        self._restart()
        try:
            async with asyncio.timeout(_START_S):
                await self.up.wait()
        except TimeoutError:
            await self.close()
            raise StartupError(f"the guardian process can't be started: {sys.executable} {_PROGRAM}") from None

    async def close(self) -> None:
        """Stop the guardian; it first kills unfinished attempts."""
        self._closing = True
        if self.pid is None:
            return
        if self._unwritten and not self._held:
            self._give_up()  # it has not read what ended, and there is nothing left to guard
        self._close_pipe()
        try:
            async with asyncio.timeout(_STUCK_S):
                await self._gone.wait()
        except TimeoutError:
            self._give_up()
            await self._gone.wait()

    def begin(self, fence: int, deadline: float) -> None:
        """Announce the start of a command; it may start once `flush` has returned True."""
        self._held[fence] = Held(deadline)
        self._say(f"begin {fence} {deadline!r}\n")

    def flush(self) -> bool:
        """Write pending lines; return False if the guardian has not received all of them: wait for `up`."""
        if self._unwritten and self._stuck is None:
            self._write()
        return self.up.is_set()

    def group(self, fence: int, group: int) -> None:
        """Report the process group of the attempt's command."""
        self._held[fence].group = group
        self._say(f"group {fence} {group}\n")
        self.flush()

    def renew(self, fences: Iterable[int], deadline: float) -> None:
        """Set a new deadline for these attempts."""
        known = [fence for fence in fences if fence in self._held]
        for fence in known:
            self._held[fence].deadline = deadline
        if known:
            self._say(f"renew {deadline!r} {' '.join(map(str, known))}\n")
            self.flush()

    def end(self, fence: int, *, sweep: bool = False) -> None:
        """Report the end of the attempt, before its first process is reaped.

        Its processes outside of its process group are killed too, with `sweep` at once.
        """
        if self._held.pop(fence, None) is not None:
            self._lately.append(fence)
            self._say(f"{'sweep' if sweep else 'end'} {fence}\n")
            self.flush()

    def _say(self, line: str) -> None:
        if self._listening:
            self._unwritten += line.encode()

    def _write(self) -> None:
        try:
            written = os.write(self._pipe, self._unwritten)
        except BlockingIOError:
            written = 0
        except BrokenPipeError:
            self._give_up()
            return
        del self._unwritten[:written]
        if self._unwritten and self._stuck is None:
            self.up.clear()
            self._loop.add_writer(self._pipe, self._write)
            # Not for long: after `end` the group's number goes back to the system, so what the guardian knows must
            # not be older than it takes all numbers to be used once.
            self._stuck = self._loop.call_later(_STUCK_S, self._give_up)
        elif not self._unwritten and self._stuck is not None:
            self._stop_waiting()
            self.up.set()

    def _stop_waiting(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None
            self._loop.remove_writer(self._pipe)

    def _give_up(self) -> None:
        """Kill the guardian and close its pipe."""
        if self.pid is not None:
            # Before the pipe ends, or it would kill what is not to be killed.
            os.kill(self.pid, signal.SIGKILL)
        self._close_pipe()

    def _close_pipe(self) -> None:
        self._listening = False
        self.up.clear()
        self._stop_waiting()
        self._unwritten.clear()
        if self._pipe != -1:
            os.close(self._pipe)
            self._pipe = -1

    def _close_ready(self) -> None:
        if self._ready != -1:
            self._loop.remove_reader(self._ready)
            os.close(self._ready)
            self._ready = -1

    def _spawn(self) -> None:
        with ExitStack() as handed_over:
            pipe, self._pipe = os.pipe()
            handed_over.callback(os.close, pipe)
            self._ready, ready = os.pipe()
            handed_over.callback(os.close, ready)
            handed_over.enter_context(marked(resource.RLIM_INFINITY))
            popen = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-I", "-S", _PROGRAM, self.token, *([self._folder] if self._folder else [])],
                env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
                cwd="/",
                stdin=pipe,
                stdout=ready,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.pid = take_over(popen)
        os.set_blocking(self._pipe, False)
        self._started_at_s = self._loop.time()
        self._loop.add_reader(self._ready, self._on_ready)
        self._exits.watch(self.pid, self._on_exit)

    def _on_ready(self) -> None:
        """Tell a new guardian what runs already, and what has ended, once it is there to act on it."""
        is_ready = bool(os.read(self._ready, 16))
        self._close_ready()
        if not is_ready or self._closing:
            return
        self._listening = True
        self.up.set()
        for fence in self._lately:  # first: one of them may have begun again
            self._say(f"end {fence}\n")
        for fence, held in self._held.items():
            self._say(f"begin {fence} {held.deadline!r}\n")
            if held.group is not None:
                self._say(f"group {fence} {held.group}\n")
        self.flush()

    def _on_exit(self) -> None:
        if self.pid is None:
            return
        exit_code = reap(self.pid)
        self.pid = None
        self._close_pipe()
        self._close_ready()
        if self._closing:
            self._gone.set()
            return
        log.warning("guardian died", exit_code=exit_code, running=len(self._held))
        if self._loop.time() - self._started_at_s > _HEALTHY_S:
            self._failures = 0
        self._restart_later()

    def _restart_later(self) -> None:
        delay_s = _RESTART_DELAYS_S[min(self._failures, len(_RESTART_DELAYS_S) - 1)]
        self._failures += 1
        self._loop.call_later(delay_s, self._restart)

    def _restart(self) -> None:
        if self._closing:
            return
        try:
            self._spawn()
        except OSError as error:
            self._close_pipe()
            self._close_ready()
            log.warning("guardian start failed", error=str(error))
            self._restart_later()
