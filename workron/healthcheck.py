"""`python -I -m workron.healthcheck [up|api|worker|reaper]`: a health check of a container for its engine.

Asks the Workron process of this container, whichever it is, for its own opinion. Without an argument that is the oldest
one. Exit code 0, or 1 with the reason in one line.

Every Workron process answers on a Unix socket with an abstract name, which needs no file: see `workron.runtime.health`.
The check runs every few seconds in each container. It therefore imports built-in modules only: the official image
has no compiled standard library, and a start that has to compile a library takes seconds.
"""

import os
import sys
from _socket import AF_UNIX, SO_PEERCRED, SOCK_STREAM, SOL_SOCKET, socket

OK = b"ok"
_TIMEOUT_S = 4.0
MOST_BYTES = 4096
_CREDENTIALS = 12
"""Size of `struct ucred`: pid, uid, gid."""


def address(process: str, pid: int) -> bytes:
    """Return the name of the socket on which a process answers.

    The mount namespace tells this container from others with the same network.
    """
    return b"\0workron-health/%d/%s/%d" % (os.stat("/proc/self/ns/mnt").st_ino, process.encode(), pid)


def is_trusted(connection: socket, pid: int | None = None) -> bool:
    """Return whether the peer is a process of this user or of root; and the given one.

    Abstract names have no owner and no mode: every process of this network may take one.
    """
    peer = connection.getsockopt(SOL_SOCKET, SO_PEERCRED, _CREDENTIALS)
    peer_pid, uid = (int.from_bytes(peer[at : at + 4], sys.byteorder) for at in (0, 4))
    return uid in (os.geteuid(), 0) and pid in (peer_pid, None)


def find(process: str | None = None) -> tuple[str, int] | None:
    """Return name and pid of the oldest Workron process in this container; `process` restricts it to one kind."""
    prefix = b"@" + address("", 0)[1:].partition(b"//")[0] + b"/"
    with open("/proc/net/unix", "rb") as sockets:
        names = {line.split()[-1].removeprefix(prefix) for line in sockets if prefix in line}
    found = [(int(pid), kind.decode()) for kind, _, pid in (name.partition(b"/") for name in names) if pid.isdigit()]
    wanted = [(pid, kind) for pid, kind in found if process in (kind, None)]
    return (min(wanted)[1], min(wanted)[0]) if wanted else None


def ask(process: str, pid: int) -> str | None:
    """Return why a process is unhealthy, None if it is healthy."""
    connection = socket(AF_UNIX, SOCK_STREAM)
    connection.settimeout(_TIMEOUT_S)
    try:
        connection.connect(address(process, pid))
        if not is_trusted(connection, pid):
            return f"another process answers in place of {process} (pid {pid})"
        answer = connection.recv(MOST_BYTES)
    except OSError as error:
        return f"{process} (pid {pid}) does not answer: {error}"
    finally:
        connection.close()
    return None if answer == OK else f"{process}: {answer.decode(errors='replace') or 'no answer'}"


def main() -> None:
    process = sys.argv[1] if len(sys.argv) > 1 else None
    found = find(process)
    sys.exit(ask(*found) if found else f"no workron {process or 'process'} runs here")


if __name__ == "__main__":
    main()
