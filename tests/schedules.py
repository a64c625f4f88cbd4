"""Short ways to schedules, for tests: made, and made due, without waiting for their time."""

import time
from dataclasses import replace
from typing import Any

from reaper.firing import Firing
from tests.servers import Bench
from workron.schedules.models import CatchUp, Definition, Overlap, RunOutcome, Schedule
from workron.schedules.times import Dst
from workron.store import Store

HOUR_MS = 3_600_000
YEARLY = "0 0 1 1 *"
"""Never due by itself while a test runs."""
RARE = Definition(YEARLY, "UTC", Dst.ONCE, Overlap.ALLOW, CatchUp.LAST, paused=False, work={"command": "true"})


def definition(**fields: Any) -> Definition:
    return replace(RARE, **fields)


def hourly(**fields: Any) -> Definition:
    return definition(cron="0 * * * *", **fields)


def workflow(size: int, **fields: Any) -> Definition:
    """A schedule of a workflow: a chain of two, and others beside."""
    jobs = [{"name": f"j{n}", "command": "true"} for n in range(size)]
    jobs[1]["depends_on"] = ["j0"]  # type: ignore[assignment]
    return definition(is_workflow=True, **{"work": {"name": "w", "jobs": jobs}} | fields)


def full_hour_ms(ago: int = 0) -> int:
    """The time of the last full hour, or of one so many hours before."""
    return (int(time.time()) // 3600 - ago) * HOUR_MS


async def put(store: Store, **fields: Any) -> Schedule:
    return (await store.schedules.put("nightly", definition(**fields)))[0]


async def make_due(bench: Bench, at_ms: int | None = None, name: str = "nightly") -> int:
    """Set a schedule's next occurrence to a time that has passed, as if it was waited for."""
    due_ms = int(time.time() * 1000) - 50 if at_ms is None else at_ms
    await bench.client.hset(bench.keys.schedule(name), "next", str(due_ms))
    await bench.client.zadd(bench.keys.schedules_due, {name: due_ms})
    return due_ms


async def fire(store: Store) -> int:
    """Make one pass; returns how many occurrences it started."""
    return (await Firing(store).fire()).started


async def outcomes(store: Store, name: str = "nightly") -> list[tuple[RunOutcome, int]]:
    """What became of the last occurrences, the newest first, and of how many of them."""
    return [(run.outcome, run.count) for run in (await store.schedules.get(name)).runs]
