"""Free ports for what tests start: each is given out once, whatever else runs on the machine."""

import os
import random
import socket
from typing import Final

OURS: Final = range(20_000, 32_000)
"""Linux gives others out by itself, from 32,768 on: to a connection, or to a server on port 0."""

_held: list[socket.socket] = []
_next = random.Random(os.getpid())  # noqa: S311 - so that processes rarely try the same


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody else gets, as long as this process lives, however late it is used."""
    while True:
        port = _next.choice(OURS)
        if _hold(port) and _is_free(port):
            return port


def _hold(port: int) -> bool:
    """Keep the port from all that choose theirs here; the kernel lets go of it with this process."""
    held = socket.socket(socket.AF_UNIX)
    try:
        held.bind(f"\0workron-tests-port-{port}")
    except OSError:
        held.close()
        return False
    _held.append(held)
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
