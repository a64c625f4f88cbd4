"""Stop signals of a process: the first one requests a graceful stop, a second one an immediate stop."""

import asyncio
import signal
from types import FrameType, TracebackType
from typing import Any, Final, Self

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SAME_S: Final = 0.5
"""Signals this close together count as one: `uv run` and a terminal both deliver a Ctrl-C."""


class StopSignals:
    """Turns signals into two events, while the context is open in a running event loop."""

    def __init__(self) -> None:
        self.stopping: Final = asyncio.Event()
        self.now: Final = asyncio.Event()
        self.told = False
        """Set directly by the first signal, before pending callbacks of the event loop."""
        self._first_at_s = 0.0
        # Under `nohup` the end of the terminal is no reason to stop.
        deaf = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._numbers = [number for number in SIGNALS if not (deaf and number == signal.SIGHUP)]
        self._before: dict[signal.Signals, Any] = {}
        self._loop: asyncio.AbstractEventLoop

    def stop(self) -> None:
        """Request a graceful stop, like the first signal; repeats have no effect."""
        if not self.stopping.is_set():
            self._first_at_s = asyncio.get_running_loop().time()
            self.stopping.set()

    def _received(self) -> None:
        if not self.stopping.is_set():
            self.stop()
        elif asyncio.get_running_loop().time() - self._first_at_s >= _SAME_S:
            self.now.set()

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        take_defaults()
        # Not the loop's own handlers: those run when all that was ready before has run.
        self._before = {number: signal.signal(number, self._interrupt) for number in self._numbers}
        return self

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self.told = True
        self._loop.call_soon_threadsafe(self._received)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def take_defaults() -> None:
    """Undo what a parent may have done to our signals: a blocked one would never arrive.

    With an ignored SIGCHLD, the exit codes of our children would be thrown away.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


async def happens(event: asyncio.Event, *, within_s: float) -> bool:
    """Return whether the event is set within that time."""
    try:
        async with asyncio.timeout(within_s):
            await event.wait()
    except TimeoutError:
        return event.is_set()
    return True
