"""The first processes of `workron up`: forked from it, so that each need not import again what they share.

They are forked before `up` has a thread, an event loop or a descriptor of its own. Each imports its own part while `up`
starts the server, then waits for its orders: an environment and the descriptors to keep. If `up` ends before it sends
them, the process ends. Later starts use new interpreters.
"""

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Final

from workron.runtime import lifeline
from workron.runtime.logs import STDERR

_FORKS: Final = sys.platform == "linux" and os.path.isdir("/proc/self/fd")
"""Elsewhere, system libraries may have started threads that a fork would lose."""
_LENGTH_BYTES: Final = 8
_MOST_FDS: Final = 16


class Prepared:
    """A forked process, with what `ended` and `Child` use of a `subprocess.Popen`."""

    def __init__(self, pid: int, orders: socket.socket) -> None:
        self.pid: Final = pid
        self.returncode: int | None = None
        self._orders = orders

    async def start(self, environment: Mapping[str, str], fds: Sequence[int]) -> None:
        """Send the process its environment and descriptors. Without all of them it ends, and `wait` returns how."""
        data = b"\0".join(os.fsencode(f"{name}={value}") for name, value in environment.items())
        with self._orders, suppress(OSError):
            self._orders.setblocking(False)
            socket.send_fds(self._orders, [len(data).to_bytes(_LENGTH_BYTES, "big")], fds)
            await asyncio.get_running_loop().sock_sendall(self._orders, data)

    def poll(self) -> int | None:
        """Return the return code like `subprocess`, None while the process runs."""
        return self._reap(os.WNOHANG)

    def wait(self) -> int:
        """Wait until the process has ended and return its return code like `subprocess`."""
        code = self._reap(0)
        assert code is not None  # noqa: S101 - it was waited for
        return code

    def _reap(self, flags: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, flags)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def discard(self) -> None:
        """End the process if it never got its orders: it has nothing to finish."""
        if self._orders.fileno() == -1:
            return
        self._orders.close()
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()

    def forget(self) -> None:
        """Close the descriptor, in a process forked later."""
        self._orders.close()


@contextmanager
def prepare(modules: Mapping[str, str], main: Callable[[str], int]) -> Iterator[Mapping[str, Prepared]]:
    """Fork a process for each name; it imports its module and, at its orders, leaves with `main(name)`.

    Yields the processes by name, none where forking is not safe, and ends those that got no orders.
    """
    prepared: dict[str, Prepared] = {}
    gc.freeze()  # a collection in one process would write to, and so copy, all pages that hold objects
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # otherwise each process would write it again
    try:
        for name, module in modules.items() if _FORKS else ():
            try:
                forked, orders = _fork()
            except OSError:  # the supervisor starts this one itself, and reports what is wrong
                break
            if forked is None:
                for other in prepared.values():
                    other.forget()
                prepared.clear()
                _separate(name, orders)
                import_module(module)
                if not _receive(orders):
                    os._exit(0)  # what `up` wants done at its exit is not for this process
                raise SystemExit(main(name))
            orders.close()
            prepared[name] = forked
        yield prepared
    finally:
        for process in prepared.values():
            process.discard()


def _fork() -> tuple[Prepared | None, socket.socket]:
    """Fork; return the new process in this one and None in the new one, and the new one's end of a pair of sockets."""
    ours, theirs = socket.socketpair()
    try:
        pid = os.fork()
    except OSError:
        ours.close()
        theirs.close()
        raise
    if pid == 0:
        ours.close()
        return None, theirs
    return Prepared(pid, ours), theirs


def _separate(name: str, orders: socket.socket) -> None:
    """Make a forked process as independent as `subprocess` would: its session, streams, descriptors and title."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(STDERR, 1)
    close_all_but(orders.fileno())
    _set_title(f"workron {name}")


def close_all_but(kept: int) -> None:
    """Close all descriptors but the streams and this one.

    `os.closerange` would try each number up to the limit if Python was built for an old system; containers often have
    a limit of a billion.
    """
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > STDERR and fd != kept:
            with suppress(OSError):  # that of the listing
                os.close(fd)


def _set_title(title: str) -> None:
    """Set what `ps` shows. The room of the environment stays as it is: tools read it in /proc."""
    os.environ["SPT_NOENV"] = "1"
    from setproctitle import setproctitle

    setproctitle(title)
    del os.environ["SPT_NOENV"]


def _receive(orders: socket.socket) -> bool:
    """Take over the environment and the descriptors; return False if `up` has ended."""
    with orders:
        header, fds, _, _ = socket.recv_fds(orders, _LENGTH_BYTES, _MOST_FDS)
        length = int.from_bytes(header, "big")
        with orders.makefile("rb") as stream:
            data = stream.read(length)
    if not header or len(data) < length:
        return False
    variables = (variable.partition(b"=") for variable in data.split(b"\0") if variable)
    os.environb.clear()
    os.environb.update({name: value for name, _, value in variables})
    os.environ.update(lifeline.environment(fds))
    return True
