"""Stop signals of a process: the first one asks to finish, a second one to stop now."""

import asyncio
import signal
from types import TracebackType
from typing import Final, Self

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SAME_S: Final = 0.5
"""Signals so close together are one wish: `uv run` and a terminal both deliver a Ctrl-C."""


class StopSignals:
    """Turns signals into two events, while the context is open in a running event loop."""

    def __init__(self) -> None:
        self.stopping: Final = asyncio.Event()
        self.now: Final = asyncio.Event()
        self._first_at_s = 0.0
        # Under `nohup` the end of the terminal is no reason to stop.
        deaf = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._numbers = [number for number in SIGNALS if not (deaf and number == signal.SIGHUP)]

    def stop(self) -> None:
        """Ask to finish, as a first signal does; once asked it changes nothing."""
        if not self.stopping.is_set():
            self._first_at_s = asyncio.get_running_loop().time()
            self.stopping.set()

    def _received(self) -> None:
        if not self.stopping.is_set():
            self.stop()
        elif asyncio.get_running_loop().time() - self._first_at_s >= _SAME_S:
            self.now.set()

    def __enter__(self) -> Self:
        for number in self._numbers:
            asyncio.get_running_loop().add_signal_handler(number, self._received)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number in self._numbers:
            asyncio.get_running_loop().remove_signal_handler(number)


async def happens(event: asyncio.Event, *, within_s: float) -> bool:
    """Whether the event is set within that time."""
    try:
        async with asyncio.timeout(within_s):
            await event.wait()
    except TimeoutError:
        return event.is_set()
    return True
