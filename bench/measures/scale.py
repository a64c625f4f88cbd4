"""Large stores: claims with a million jobs waiting, lists with a million finished, the longest script call anywhere."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from bench.direct import Direct
from bench.measures.latency import percentiles
from bench.plan import Plan
from workron.errors import WorkronError
from workron.models import JobFilter, Status
from workron.redis.connection import Connection
from workron.store import Store
from workron.store.policy import Policy

MILLION = 1_000_000
WIDE = 100_000
RUNNING = 10_000
FEW = 1_000
CLAIMS, TURNS = 400, 7
HEARTBEAT_S = 5.0


def measure(plan: Plan, turn: int) -> None:
    if turn == 0:  # once: it takes minutes, and compares with itself
        asyncio.run(_measure(plan))
        plan.server.clear()


async def _measure(plan: Plan) -> None:
    direct = Direct.on(plan.server)
    try:
        await _many(plan, direct)
        await _graphs(plan, direct)
        for running in (RUNNING // 5, RUNNING):
            await _heartbeats(plan, direct, plan.scaled(running))
    finally:
        await direct.store.aclose()


async def _many(plan: Plan, direct: Direct) -> None:
    plan.server.clear()
    count = plan.scaled(MILLION)
    await direct.fill(count)
    plan.say(f"  {count:,} waiting")
    await _claims(plan, direct, count)
    await direct.finish_all()
    plan.say(f"  {count:,} finished")
    await _lists(plan, direct.store)
    direct.watch_slow()
    await _sweep(plan)
    _longest(plan, "sweep", direct)


async def _claims(plan: Plan, many: Direct, count: int) -> None:
    """Claim in turns from a namespace with few waiting jobs and from the one with many; both lie in one server."""
    few = Direct.on(plan.server, "few")
    await few.fill(FEW)
    for _ in range(TURNS):
        await few.fill(CLAIMS)
        for name, direct in ((f"{FEW:,} waiting", few), (f"{count:,} waiting", many)):
            p50, p99 = await direct.time_claims(CLAIMS)
            plan.results.add("claim p50 in the server", name, p50)
            plan.results.add("claim p99 in the server", name, p99)
    await few.store.aclose()


async def _lists(plan: Plan, store: Store) -> None:
    pages: dict[str, Callable[[], Awaitable[object]]] = {
        "all jobs": lambda: store.list_jobs(JobFilter()),
        "done": lambda: store.list_jobs(JobFilter(status=Status.DONE)),
        "done of a queue": lambda: store.list_jobs(JobFilter(status=Status.DONE, queue="default")),
        "failed": lambda: store.list_jobs(JobFilter(status=Status.FAILED)),
        "counts by status and queue": store.queues,
    }
    for name, ask in pages.items():
        plan.results.add("page of 50 of a million", name, percentiles([await _timed(ask) for _ in range(30)])[0])
    page = await store.list_jobs(JobFilter(status=Status.DONE))
    for _ in range(20):
        page = await store.list_jobs(JobFilter(status=Status.DONE), cursor=page.next_cursor)
    cursor = page.next_cursor
    again = percentiles([await _timed(lambda: store.list_jobs(JobFilter(status=Status.DONE), cursor=cursor))] * 2)
    plan.results.add("page of 50 of a million", "done, 20 pages on", again[0])


async def _timed(ask: Callable[[], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await ask()
    return (time.perf_counter() - started) * 1000


async def _sweep(plan: Plan) -> None:
    async with Store(Connection.open(plan.server.url), policy=Policy(retention_done_ms=1)) as store:
        await store.maintenance.sweep()


async def _graphs(plan: Plan, direct: Direct) -> None:
    size = plan.scaled(WIDE, least=1000)
    for name, submit in (("workflow in layers", direct.submit_layers), ("fan-out", direct.submit_fan_out)):
        plan.server.clear()
        direct.watch_slow()
        await submit(size)
        _longest(plan, f"{name} of {size:,}: submit", direct)
        if name == "fan-out":
            direct.watch_slow()
            await direct.finish_first_and_propagate()
            _longest(plan, f"{name} of {size:,}: parent ends", direct)


def _longest(plan: Plan, name: str, direct: Direct) -> None:
    script, took_ms = direct.slowest()
    plan.results.add("longest script call", f"{name} ({script})", took_ms)
    plan.say(f"  longest call, {name}: {script} {took_ms:.1f} ms")


async def _heartbeats(plan: Plan, direct: Direct, running: int) -> None:
    plan.server.clear()
    beats = 10
    direct.held.clear()
    await direct.fill(running)
    await direct.claim_all()
    direct.watch_slow()
    before = plan.server.usage()
    try:
        for _ in range(beats):
            await direct.heartbeat()
    except WorkronError as error:
        plan.results.note(f"heartbeats of {running:,} running jobs fail: {error}")
        return
    cpu_s = plan.server.usage().since(before).cpu_s / beats
    plan.results.add("heartbeats", f"{running:,} running jobs", cpu_s / HEARTBEAT_S * 100)
    _longest(plan, f"heartbeat of {running:,}", direct)
