"""`python -m bench.due`: how late scheduled jobs start and expired ones end on an idle system, and what waiting costs.

One worker that has nothing else to do; no reaper, so whatever is on time is so by the worker's own timer. With
`--scheduled` also stores that many jobs, all due in a year.
"""

import argparse
import asyncio
import random
import resource
import statistics
import sys
import time
from collections.abc import Sequence

from bench.idle import CHUNK, Bench
from bench.measures.latency import percentiles
from bench.quiet import quiet
from bench.server import Server, Usage
from bench.settings import settings_for
from workron import ids
from workron.models import Claim, Moment, NewJob
from workron.store import Store

YEAR_MS = 365 * 86_400_000
GAP_MS = 60
SETTLED_S = 1.0


class Stamped(Bench):
    """Notes when each job starts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.started_ms: dict[str, float] = {}

    def body(self, claim: Claim) -> None:
        self.started_ms[claim.id] = time.time() * 1000
        super().body(claim)


def times(jobs: int) -> list[int]:
    """Return moments to come, with gaps around `GAP_MS`."""
    at, found = time.time() * 1000 + 300, []
    for _ in range(jobs):
        at += random.uniform(0.5, 1.5) * GAP_MS  # noqa: S311 - no secret
        found.append(round(at))
    return found


async def lateness(bench: Stamped, jobs: int) -> list[float]:
    """Return how late each of so many scheduled jobs starts, ms."""
    before = bench.ran
    due = dict(zip(ids.new_ids(jobs), times(jobs), strict=True))
    await bench.store.submit([NewJob(name, command="true", run_at_ms=at) for name, at in due.items()])
    await bench.wait(before + jobs)
    return [bench.started_ms[name] - at for name, at in due.items()]


async def overstay(bench: Stamped, jobs: int) -> list[float]:
    """Return how long after their time this many jobs without a worker are cancelled, ms."""
    until = dict(zip(ids.new_ids(jobs), times(jobs), strict=True))
    waiting = [NewJob(name, command="true", queue="unserved", expires=Moment(at_ms=at)) for name, at in until.items()]
    await bench.store.submit(waiting)
    late = []
    for name, at in until.items():
        job = await bench.store.wait(name, 60)
        late.append(float((job.finished_at_ms or 0) - at))
    return late


async def idle(server: Server, seconds: float) -> tuple[Usage, float]:
    """Return what the server does in that time for waiting clients, and the CPU seconds of this process."""
    before, used = server.usage(), resource.getrusage(resource.RUSAGE_SELF)
    await asyncio.sleep(seconds)
    after = resource.getrusage(resource.RUSAGE_SELF)
    return server.usage().since(before), after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime


async def schedule(server: Server, jobs: int) -> float:
    """Store so many jobs that are due in a year; return the bytes that each takes."""
    async with Store.connect(settings_for(server.url)) as store:
        await Bench(store).submit(1)  # the script is loaded then
        before = server.usage()
        at = round(time.time() * 1000) + YEAR_MS
        for start in range(0, jobs, CHUNK):
            names = ids.new_ids(min(CHUNK, jobs - start))
            await store.submit([NewJob(name, command="true", run_at_ms=at + start) for name in names])
    return server.usage().since(before).memory / jobs


def show(what: str, values: Sequence[float]) -> None:
    p50, p99 = percentiles(list(values))
    print(f"{what:34} p50 {p50:6.1f} ms   p99 {p99:6.1f} ms   most {max(values):6.1f} ms   of {len(values)}")


async def measure(server: Server, jobs: int, scheduled: int, idle_s: float) -> None:
    if scheduled:
        print(f"{'bytes per scheduled job':34} {await schedule(server, scheduled):6.0f}   of {scheduled:,}")
    settings = settings_for(server.url)
    async with Store.connect(settings) as store:
        bench = Stamped(store)
        async with bench.working(settings):
            await asyncio.sleep(SETTLED_S)
            usage, cpu_s = await idle(server, idle_s)
            print(f"{'idle worker, of a core':34} {100 * cpu_s / idle_s:6.2f} %")
            print(f"{'server meanwhile, of a core':34} {100 * usage.cpu_s / idle_s:6.2f} %")
            print(f"{'round trips a second meanwhile':34} {usage.reads / idle_s:6.2f}")
            show("scheduled jobs start late by", await lateness(bench, jobs))
            late = await overstay(bench, jobs)
            show("expired jobs end late by", late)
            if statistics.median(late) < 0:
                raise AssertionError("a job ended before its time")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.due", description=__doc__)
    parser.add_argument("--server", choices=("redis", "valkey"), default="valkey")
    parser.add_argument("--jobs", type=int, default=300, help="that become due, one after the other")
    parser.add_argument("--scheduled", type=int, default=0, help="further jobs, due in a year")
    parser.add_argument("--idle", type=float, default=10.0, metavar="SECONDS", help="how long to look at nothing")
    options = parser.parse_args()
    quiet()
    with Server(options.server) as server:
        asyncio.run(measure(server, options.jobs, options.scheduled, options.idle))
    return 0


if __name__ == "__main__":
    sys.exit(main())
