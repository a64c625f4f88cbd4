"""Watches for the end of child processes: one epoll for all of them, a single reader for the event loop."""

import asyncio
import contextlib
import errno
import os
import select
from collections.abc import Callable
from threading import Thread
from typing import Final

_ENDS: Final = 64
"""Maximum of ends reported per iteration of the loop; the rest follows in the next."""


class Exits:
    """Reports the end of child processes. [A reader in the loop for each of them took twice as long.]"""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[], None]] = {}
        """By pidfd."""
        self._loop.add_reader(self._epoll.fileno(), self._tell)

    def close(self) -> None:
        """Stop watching; no more ends are reported."""
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()
        for pidfd in self._callbacks:
            os.close(pidfd)
        self._callbacks.clear()

    def watch(self, pid: int, callback: Callable[[], None]) -> None:
        """Call back in the loop once this child has exited; the caller then reaps it."""
        try:
            pidfd = os.pidfd_open(pid)
        except (AttributeError, OSError):  # not built in, an old kernel, a strict sandbox, or out of descriptors
            self._watch_in_thread(pid, callback)
            return
        try:
            self._epoll.register(pidfd, select.EPOLLIN)
        except OSError:  # the system's limit of watched files
            os.close(pidfd)
            self._watch_in_thread(pid, callback)
        else:
            self._callbacks[pidfd] = callback

    def _watch_in_thread(self, pid: int, callback: Callable[[], None]) -> None:
        try:
            Thread(target=_wait, args=(pid, self._loop, callback), daemon=True).start()
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, "no thread can be started") from error

    def _tell(self) -> None:
        for pidfd, _ in self._epoll.poll(0, _ENDS):
            callback = self._callbacks.pop(pidfd)
            self._epoll.unregister(pidfd)
            os.close(pidfd)
            callback()


def _wait(pid: int, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
        loop.call_soon_threadsafe(callback)
