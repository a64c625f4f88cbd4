"""Resource exhaustion: the system has no process, file, memory or disk left for another command, or lacks its shell.

Jobs are not to blame: they wait, for a while at their worker, then for another one.
"""

import asyncio
import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from workron.runtime.logger import log

_OF_THE_COMMAND: Final = frozenset(
    {errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG}
    | {errno.ENOEXEC, errno.E2BIG, errno.EINVAL, errno.ELIBBAD, errno.ETXTBSY, errno.ENXIO}
)
"""What is wrong with a program, a directory or a file that a command names or makes."""
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0

AGAIN_S: Final = 0.2
"""Interval between two tries to start a command."""
PATIENCE_OF_LEASE: Final = 3
"""A job is released after its lease divided by this: its timeout counts from its claim."""


class Shortage(Exception):
    """The command was not started for lack of a resource, given by `str()`."""


def is_shortage(error: OSError) -> bool:
    """Return whether the host is to blame: the same call may succeed later, without any change to the command."""
    return error.errno not in _OF_THE_COMMAND


class Exhaustion:
    """The state of a shortage: the waiting commands, and how many jobs the worker may claim meanwhile."""

    def __init__(self) -> None:
        self.changed: Callable[[], None] = lambda: None
        """Called when more jobs may be claimed than before."""
        self.lasts = False
        self._since_s = 0.0
        self._waiting = 0
        self._paused = False
        self._pause_s = _FIRST_PAUSE_S

    def allowed(self, wanted: int) -> int:
        """Return how many jobs to claim during the shortage: one as a probe, and only while none is waiting."""
        return 0 if self._waiting or self._paused else min(wanted, 1)

    @contextmanager
    def waiting(self, shortage: Shortage) -> Iterator[None]:
        """Count a waiting command; log the first one."""
        if not self.lasts:
            self.lasts, self._since_s = True, time.monotonic()
            log.warning("resources exhausted, commands wait to start", error=str(shortage))
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    def started(self) -> None:
        """Record that a command was started: resources are available again."""
        log.info("resources available, commands start again", after_s=round(time.monotonic() - self._since_s, 1))
        self.lasts, self._pause_s = False, _FIRST_PAUSE_S
        self.changed()

    def gave_up(self) -> None:
        """Record that a job is released: the next one is claimed after a pause that grows each time."""
        if not self._paused:
            self._paused = True
            asyncio.get_running_loop().call_later(self._pause_s, self._resume)
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def _resume(self) -> None:
        self._paused = False
        self.changed()
