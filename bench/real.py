"""Workron's own processes, started as a user starts them: worker, reaper, API."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench.running import RunError
from bench.server import free_port

KEY: Final = "bench-key-of-sixteen-or-more"
_START_S: Final = 30


def environment() -> dict[str, str]:
    """The environment without settings of the user's own, in which Python keeps what it has compiled."""
    left_out = ("WORKRON_", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if not name.startswith(left_out)}


@contextmanager
def process(*arguments: str, **variables: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run `workron ARGUMENTS` in an empty folder; end it with TERM at the end."""
    with tempfile.TemporaryDirectory(prefix="workron-bench-") as folder:
        started = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "workron", *arguments],
            cwd=folder,
            env=environment() | {"XDG_DATA_HOME": folder, "WORKRON_LOG_LEVEL": "warning"} | variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield started
        finally:
            started.terminate()
            try:
                started.wait(20)
            except subprocess.TimeoutExpired:
                started.kill()
                started.wait()


@contextmanager
def real_worker(url: str, *, slots: int, **variables: str) -> Iterator["subprocess.Popen[bytes]"]:
    with process("worker", "--redis", url, "--slots", str(slots), **variables) as started:
        yield started


@contextmanager
def real_api(url: str) -> Iterator[int]:
    """Run an API process and give its port."""
    port = free_port()
    with process("api", "--redis", url, "--port", str(port), WORKRON_API_KEY=KEY) as started:
        wait_for_port(port, started)
        yield port


def wait_for_port(port: int, started: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if started.poll() is not None or time.monotonic() > deadline:
                raise RunError("a process of Workron did not come up") from None
            time.sleep(0.005)  # a process that starts cannot be waited for otherwise; at most `_START_S`
        else:
            return
