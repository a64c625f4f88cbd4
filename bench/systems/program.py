"""What the programs of all systems share: their roles, and the pipe on which jobs say that they run.

    PROGRAM one N          enqueue N no-op jobs, one call each
    PROGRAM bulk N         enqueue N no-op jobs in the fastest way that the system offers
    PROGRAM paced N MS     enqueue N stamping jobs, one every MS milliseconds
    PROGRAM work           work until killed

`BENCH_PORT` names the Redis server on 127.0.0.1, `BENCH_FIFO` the pipe. Enqueueing prints one JSON document: the
seconds it took, or the moments of the calls. No import but of the standard library: this runs in every environment.
"""

import asyncio
import inspect
import json
import os
import sys
import time
from typing import Protocol

PORT = int(os.environ.get("BENCH_PORT", "6379"))
URL = f"redis://127.0.0.1:{PORT}/0"
WARM = 10
"""Jobs enqueued before the clock starts: connections are open and scripts loaded then."""

_pipe = -1


def noop() -> None:
    """The body of a no-op job: one byte to the pipe, so that it is counted in whatever process or thread it runs."""
    _say(b".")


def stamp(number: int) -> None:
    """The body of a stamping job: its number and the time, on the clock that all processes share."""
    now = time.monotonic_ns()
    _say(b"%d %d\n" % (number, now))


def _say(data: bytes) -> None:
    global _pipe
    if _pipe == -1:
        _pipe = os.open(os.environ["BENCH_FIFO"], os.O_WRONLY)
    os.write(_pipe, data)


class System(Protocol):
    """What a program brings; each method may be plain or asynchronous."""

    def submit(self) -> object: ...
    def submit_stamp(self, number: int) -> object: ...
    def submit_many(self, count: int) -> object: ...
    def work(self) -> object: ...


def main(system: System) -> None:
    """Run one role of a system."""
    role, *numbers = sys.argv[1:]
    if role == "work":
        working = system.work()
        if inspect.iscoroutine(working):
            asyncio.run(working)
        return
    print(json.dumps(asyncio.run(_enqueue(system, role, [int(number) for number in numbers]))), flush=True)
    os._exit(0)  # ardiq's threads sometimes crash the interpreter when it ends


async def _enqueue(system: System, role: str, numbers: list[int]) -> dict[str, object]:
    for _ in range(WARM):
        await _finish(system.submit())
    if role == "paced":
        return await _paced(system, *numbers)
    count = numbers[0] - WARM
    started = time.perf_counter()
    if role == "bulk":
        await _finish(system.submit_many(count))
    else:
        for _ in range(count):
            await _finish(system.submit())
    return {"seconds": time.perf_counter() - started, "jobs": count}


async def _paced(system: System, count: int, pause_ms: int) -> dict[str, object]:
    moments = []
    for number in range(count):
        await asyncio.sleep(pause_ms / 1000)
        moments.append(time.monotonic_ns())
        await _finish(system.submit_stamp(number))
    return {"submitted_ns": moments}


async def _finish(answer: object) -> None:
    if inspect.isawaitable(answer):
        await answer
