"""How a worker stops: by a signal or a drain request, with a timeout for its commands."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from workers.executor import Executor
from workron.runtime.logger import Logger

PATIENCE_S: Final = 15.0
"""How long after the timeout a stopping worker tries to deliver results while the store is unavailable."""
ANSWER_S: Final = 2.0
"""How long a stopping worker waits for an unimportant response; a hurried one, for any response."""


class Stopping:
    """Whether a worker should stop, and its timeouts. `changed` is called on every change.

    `idle` returns whether it has no attempts.
    """

    def __init__(
        self,
        executor: Executor,
        timeout_s: float,
        changed: Callable[[], None],
        idle: Callable[[], bool],
        log: Logger,
    ) -> None:
        self.over: Final = asyncio.Event()
        """Set when no outstanding response is awaited any more."""
        self._begun = False
        self._executor = executor
        self._timeout_s = timeout_s
        self._changed = changed
        self._idle = idle
        self._log = log
        self._hurried = False
        self._ends_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def begun(self) -> bool:
        """Whether to start nothing more: set directly by the signal handler, before the event loop runs."""
        return self._begun or self._executor.halted()

    def begin(self, timeout_s: float | None = None) -> None:
        """Let commands run for this time, by default `drain_timeout`, then stop them; a repeat can only shorten it."""
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        ends_at = time.monotonic() + timeout_s
        if self._timer is not None and self._ends_at <= ends_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._begun, self._ends_at = True, ends_at
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(timeout_s, self._stop_commands)
        loop.call_later(ANSWER_S, self._end_if_idle)
        for attempt in list(self._executor.attempts.values()):
            if not attempt.started:  # so that no job starts from now on
                attempt.stop()
        self._log.info("worker draining", running=len(self._executor.attempts), timeout_s=timeout_s)
        self._changed()

    def hurry(self) -> None:
        """Kill all commands."""
        self.begin()
        self._hurried = True
        for attempt in list(self._executor.attempts.values()):
            attempt.stop(now=True)
        asyncio.get_running_loop().call_later(ANSWER_S, self.over.set)
        self._changed()

    def _stop_commands(self) -> None:
        for attempt in list(self._executor.attempts.values()):
            attempt.stop()

    def _end_if_idle(self) -> None:
        if self._idle():  # but a claim may be under way, to a store that does not answer
            self.over.set()

    def gives_up(self, *, reporting: bool) -> bool:
        """Whether to stop without the store: at once with nothing to report, else some time after the commands end."""
        late = time.monotonic() > self._ends_at + PATIENCE_S
        return self._begun and (self._hurried or not reporting or late)
