"""What the tests here share: words with a server over its socket, conditions to wait for, processes to look at."""

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.patience import Patience


def call(path: Path, *words: str | bytes) -> bytes:
    """Send one command; returns the first line of the answer, or the bulk string that it announces."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(str(path))
        data = [word.encode() if isinstance(word, str) else word for word in words]
        connection.sendall(b"*%d\r\n" % len(data) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in data))
        with connection.makefile("rb") as answer:
            line = answer.readline().rstrip()
            return answer.read(int(line[1:])) if line.startswith(b"$") and line != b"$-1" else line


def answers(path: Path) -> bool:
    """Whether a server serves on the socket."""
    try:
        return call(path, "PING") == b"+PONG"
    except OSError:
        return False


def shell(command: str) -> str:
    """Return what a command line prints, as someone who pastes it would see it."""
    return subprocess.check_output(command, shell=True, text=True)  # noqa: S602 — it is meant for a shell


def wait_for(condition: Callable[[], object], what: str, *, within_s: float = 30.0) -> None:
    """Wait until the condition holds."""
    patience = Patience(within_s)
    while not condition():
        assert not patience.is_over, f"not within {within_s:g} s: {what}"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        return b") Z" not in Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False


def processes_of(text: str | Path) -> list[int]:
    """Return the pids of all running processes whose command line or environment holds the text."""
    return [pid for pid in _pids() if os.fsencode(text) in _read(pid, "cmdline") + _read(pid, "environ")]


def command_line(pid: int) -> bytes:
    return _read(pid, "cmdline")


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
