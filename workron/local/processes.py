"""Waits for child processes without a thread, and formats how they ended."""

import asyncio
import os
import signal
from typing import Final, Protocol

_POLL_S: Final = 0.05


class Process(Protocol):
    """What is used of a `subprocess.Popen`."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def poll(self) -> int | None: ...

    def wait(self) -> int: ...


async def ended(process: Process) -> None:
    """Wait until the process has ended. It is not reaped, so its pid and its group's are not reused."""
    if process.returncode is not None:
        return
    try:
        fd = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # a system that has none
        while process.poll() is None:  # noqa: ASYNC110 — nothing tells
            await asyncio.sleep(_POLL_S)
        return
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(fd, gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)


async def ended_within(process: Process, seconds: float) -> bool:
    """Return whether the process ends within that time."""
    try:
        async with asyncio.timeout(seconds):
            await ended(process)
    except TimeoutError:
        return False
    return True


def how_it_ended(returncode: int) -> str:
    """Return `exit code 3` or `SIGKILL` for a return code of `subprocess`."""
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"
