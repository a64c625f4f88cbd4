"""Short ways to run commands through an executor, and to see what became of their processes."""

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

from workers.attempt import Attempt
from workers.executor import Executor
from workers.guardian import boottime_s
from workron.models import Claim, Outcome

LEASE_S = 100.0


def claim_for(command: str | None = None, *, fence: int = 1, **fields: Any) -> Claim:
    """Return a claim for a command, or for the `argv` among the fields."""
    defaults: dict[str, Any] = {
        "id": f"job-{fence}",
        "attempt": 1,
        "lease_ms": 30_000,
        "argv": None,
        "queue": "default",
        "timeout_ms": None,
        "env": {},
        "cwd": None,
    }
    return Claim(**{**defaults, "fence": fence, "command": command, **fields})


def alive(pid: int) -> bool:
    """Tell whether a process exists and is more than a zombie."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def pid_in(path: Path) -> int | None:
    """Return the pid that a command wrote to a file, None as long as it has not."""
    with contextlib.suppress(OSError):
        text = path.read_text()
        return int(text) if text.endswith("\n") else None
    return None


def start(executor: Executor, command: str | None = None, **fields: Any) -> Attempt:
    return executor.start(claim_for(command, **fields), boottime_s() + LEASE_S)


async def run(executor: Executor, command: str | None = None, **fields: Any) -> tuple[Outcome, bytes]:
    """Run a command and return its outcome and its whole (short) output."""
    attempt = start(executor, command, **fields)
    outcome = await attempt.wait()
    patch = attempt.output.take()
    return outcome, patch.data if patch is not None else b""


async def let_end_unnoticed(attempt: Attempt) -> None:
    """Start the command and return after its end, without giving the loop a chance to notice."""
    while attempt._process is None:  # noqa: ASYNC110
        await asyncio.sleep(0)
    while alive(attempt._process.pid):
        time.sleep(0.001)  # noqa: ASYNC251


def guardian_of(worker_pid: int) -> int | None:
    """Return the guardian process among a worker's children; None while there is none."""
    for child in Path(f"/proc/{worker_pid}/task/{worker_pid}/children").read_text().split():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has been reaped since
            if b"guardian.py" in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
    return None
