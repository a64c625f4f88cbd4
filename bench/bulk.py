"""`python -m bench.bulk`: bulk actions on many failed jobs while the system runs.

One reaper works at them; meanwhile a probe submits, claims and finishes jobs of another queue, one at a time. Prints
jobs per second, the longest script call, and how long the others' calls take, before and meanwhile.
"""

import argparse
import asyncio
import time
from contextlib import suppress
from statistics import quantiles
from typing import Any, Final

from bench.quiet import quiet
from bench.server import Server
from bench.settings import settings_for
from reaper.reaper import Reaper
from workron import ids
from workron.models import ClaimRequest, NewJob, Outcome, Reason, Result
from workron.models.actions import ActionFilter, NewAction, Verb
from workron.models.exchange import MAX_RESULTS
from workron.store import Store

CHUNK: Final = 400
FAILED: Final = Outcome(Reason.EXIT_CODE, exit_code=1, error="disk full: /data")


class Work:
    """Claims and finishes jobs of one queue."""

    def __init__(self, store: Store, queue: str) -> None:
        self._store = store
        self._queue = queue
        self._requests = 0

    async def submit(self, count: int) -> None:
        for start in range(0, count, CHUNK):
            names = ids.new_ids(min(CHUNK, count - start))
            await self._store.submit(
                [NewJob(name, command="true", queue=self._queue, max_attempts=1) for name in names]
            )

    async def finish(self, count: int, outcome: Outcome) -> None:
        while count > 0:
            self._requests += 1
            limit = min(count, MAX_RESULTS)
            request = ClaimRequest(self._queue, (self._queue,), limit, f"bench:{self._requests}")
            claims = (await self._store.attempts.claim(request)).claims
            results = [Result(claim.id, claim.fence, outcome) for claim in claims]
            await self._store.attempts.finish(results, worker=self._queue)
            count -= len(claims)


async def probe(store: Store, took_ms: list[float]) -> None:
    """Run one job after the other through the store, and note how long each takes."""
    work = Work(store, "probe")
    while True:
        began = time.perf_counter()
        await work.submit(1)
        await work.finish(1, Outcome(None, exit_code=0))
        took_ms.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(0.005)


def spread(took_ms: list[float]) -> str:
    cuts = quantiles(took_ms, n=100)
    return f"p50 {cuts[49]:.2f} ms, p99 {cuts[98]:.2f} ms of {len(took_ms)}"


def longest(server: Server) -> str:
    """Return the longest script call since the statistics were cleared, and how many were over 10 ms."""
    entries: list[dict[str, Any]] = server.client.slowlog_get(10_000)
    took_ms = [entry["duration"] / 1000 for entry in entries if entry["command"].startswith(b"EVAL")]
    return f"{max(took_ms, default=0):.2f} ms ({sum(took > 10 for took in took_ms)} over 10 ms)"


async def measure(server: Server, jobs: int) -> None:
    settings = settings_for(server.url)
    async with Store.connect(settings) as store, Store.connect(settings) as other, Store.connect(settings) as third:
        work = Work(store, "failed")
        await work.submit(jobs)
        await work.finish(jobs, FAILED)
        before_ms: list[float] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(2):
                await probe(other, before_ms)
        print(f"another job's submit, claim and finish before: {spread(before_ms)}")
        failed = ActionFilter(queue="failed", error="disk full")
        for new in (
            NewAction(ids.new_id(), Verb.RETRY, failed, dry_run=True),
            NewAction(ids.new_id(), Verb.RETRY, failed),
            NewAction(ids.new_id(), Verb.MOVE, ActionFilter(queue="failed"), to_queue="moved"),
            NewAction(ids.new_id(), Verb.CANCEL, ActionFilter(queue="moved")),
            NewAction(ids.new_id(), Verb.DELETE, ActionFilter(queue="moved")),
        ):
            await work_off(server, third, other, new)


async def work_off(server: Server, store: Store, other: Store, new: NewAction) -> None:
    """Let a reaper work at an action while the probe runs, and print the durations."""
    server.client.config_set("slowlog-log-slower-than", 500)
    server.client.config_set("slowlog-max-len", 10_000)
    server.client.slowlog_reset()
    meanwhile_ms: list[float] = []
    probing = asyncio.create_task(probe(other, meanwhile_ms))
    cpu_s, began = server.usage().cpu_s, time.perf_counter()
    await store.actions.order(new)
    rounds = await Reaper(store, every_s=1).act()
    took_s, cpu_s = time.perf_counter() - began, server.usage().cpu_s - cpu_s
    probing.cancel()
    ended = await store.actions.get(new.id)
    name = f"{new.verb}{', dry run' if new.dry_run else ''}"
    print(
        f"{name}: {ended.matched:,} jobs in {took_s:.1f} s, {ended.matched / took_s:,.0f} a second, in {rounds} steps, "
        f"{cpu_s / rounds * 1000:.2f} ms of the server each; longest script call {longest(server)}; "
        f"another job meanwhile: {spread(meanwhile_ms)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.bulk", description="Measure bulk actions.")
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--server", choices=("redis", "valkey"), default="redis")
    options = parser.parse_args()
    quiet()
    with Server(options.server) as server:
        asyncio.run(measure(server, options.jobs))


if __name__ == "__main__":
    main()
