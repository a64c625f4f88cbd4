"""The listening socket: it responds even when this process is out of file descriptors."""

import errno
import os
import socket
import time
from contextlib import suppress
from typing import Any, Final

from api import problems
from workron.errors import StoreUnavailable
from workron.runtime.logger import log

_SHORT: Final = (errno.EMFILE, errno.ENFILE)
_QUIET_S: Final = 10.0
"""Interval between log lines about rejected connections."""
_AT_ONCE_S: Final = 0.5


class Listener(socket.socket):
    """Answers 503 to connections without a file descriptor, instead of leaving them hanging.

    It reserves one descriptor for that. Without it, asyncio retries after a second. [Once for each
    entry of the backlog: 2,048 timers, each of which made 2,048 more, and a log line for each.]
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._reserve = -1
        self._refused_s = self._failed_s = -_QUIET_S

    def listen(self, backlog: int = 128, /) -> None:
        super().listen(backlog)
        self._keep_reserve()

    def accept(self) -> tuple[socket.socket, Any]:
        try:
            return super().accept()
        except OSError as error:
            if error.errno not in _SHORT:
                raise
            if self._refuse():
                raise BlockingIOError from error  # the loop comes again at once if there are more
            if time.monotonic() - self._failed_s < _AT_ONCE_S:
                raise BlockingIOError from error
            self._failed_s = time.monotonic()
            raise

    def close(self) -> None:
        self._drop_reserve()
        super().close()

    def _refuse(self) -> bool:
        """Answer 503 to the next connection; return False if there is no descriptor even for that."""
        self._drop_reserve()
        now_s, before_s, self._refused_s = time.monotonic(), self._refused_s, time.monotonic()
        if now_s - before_s >= _QUIET_S:
            log.warning("out of file descriptors, connections are refused")
        try:
            connection, _ = super().accept()
        except BlockingIOError:
            return True
        except OSError:
            return False
        else:
            with connection, suppress(OSError):
                connection.setblocking(False)
                with suppress(BlockingIOError):
                    connection.recv(1 << 20)  # what is left unread would have the answer thrown away
                connection.send(_REFUSAL)
                connection.shutdown(socket.SHUT_WR)
            return True
        finally:
            self._keep_reserve()

    def _keep_reserve(self) -> None:
        if self._reserve == -1:
            with suppress(OSError):
                self._reserve = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _drop_reserve(self) -> None:
        if self._reserve != -1:
            os.close(self._reserve)
            self._reserve = -1


_REFUSAL: Final = problems.closing(problems.from_error(StoreUnavailable("too many connections", retry_after_s=1.0)))
