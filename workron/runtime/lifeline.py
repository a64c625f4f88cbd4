"""Child processes that must not outlive their parent, even one killed with SIGKILL.

The parent holds the only write end of a pipe; children are given the read end and, when it reports the end of the
file, stop as on SIGTERM. Other descriptors that a child keeps open until it ends show other processes
when the last child is gone.
"""

import fcntl
import os
import signal
import threading
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Final, Self

_VARIABLE: Final = "WORKRON_LIFELINE"


def watch() -> None:
    """In a child: stop with SIGTERM when the parent is gone. Does nothing in a process started by hand."""
    fds = [int(fd) for fd in os.environ.pop(_VARIABLE, "").split(",") if fd]
    if not fds:
        return
    for fd in fds:
        os.set_inheritable(fd, False)
    threading.Thread(target=_stop_at_end_of, args=(fds[0],), name="lifeline", daemon=True).start()


def environment(fds: Iterable[int]) -> Mapping[str, str]:
    """Return the variables with which a child finds the descriptors that it was given: those of `Lifeline.fds`."""
    return {_VARIABLE: ",".join(map(str, fds))}


def _stop_at_end_of(fd: int) -> None:
    while os.read(fd, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


class Lifeline:
    """The parent's side: how to start children, and whether children of an earlier parent still exist."""

    def __init__(self, lock: int, *held: int) -> None:
        """Take over `lock`, an open file: children of all parents with the same file share its lock."""
        self._lock = lock
        self._read, self._write = os.pipe()
        self.leftovers = not _lock(self._lock, fcntl.LOCK_EX)
        """Whether children of an earlier parent were still stopping when this one started."""
        _lock(self._lock, fcntl.LOCK_SH)
        self.fds: Final = (self._read, self._lock, *held)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for fd in (self._read, self._write, self._lock):
            os.close(fd)


def _lock(fd: int, mode: int) -> bool:
    try:
        fcntl.flock(fd, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
