"""Schedules that are changed, and what goes wrong around them."""

import asyncio
import time

import pytest

from reaper.firing import Firing
from reaper.reaper import Reaper
from tests.builders import claim, finish, new_job, submit
from tests.conftest import WaitUntil
from tests.queue_limits import limit_queue
from tests.schedules import (
    HOUR_MS,
    definition,
    fire,
    full_hour_ms,
    hourly,
    make_due,
    outcomes,
    put,
)
from tests.servers import Bench
from workron.errors import IdempotencyConflict, NotFound, StoreBroken
from workron.models import JobFilter, Status
from workron.schedules.models import CatchUp, Overlap, RunOutcome
from workron.schedules.plan import Kind, plan
from workron.specs.schedule import expand
from workron.store import Store, occurrence

FIRED, SKIPPED, MISSED = RunOutcome.FIRED, RunOutcome.SKIPPED, RunOutcome.MISSED


async def all_jobs(store: Store) -> list[str]:
    return [job.id for job in (await store.list_jobs(JobFilter(), limit=1000)).jobs]


async def end_all(store: Store) -> None:
    for got in await claim(store, limit=50):
        await finish(store, got)


# --- steering ---------------------------------------------------------------------------------------------------------


async def test_a_paused_schedule_does_not_fire_and_makes_up_for_nothing(bench: Bench, store: Store) -> None:
    await put(store, catch_up=CatchUp.ALL)
    await make_due(bench)
    paused = await store.schedules.pause("nightly", paused=True)
    assert (paused.next_at_ms, paused.definition.paused) == (None, True)
    assert await fire(store) == 0
    resumed = await store.schedules.pause("nightly", paused=False)
    assert resumed.next_at_ms is not None
    assert resumed.next_at_ms > time.time() * 1000
    assert await fire(store) == 0


async def test_a_change_of_the_work_keeps_what_is_due(bench: Bench, store: Store) -> None:
    await put(store)
    await make_due(bench)
    await put(store, work={"command": "other"})
    assert await fire(store) == 1
    [got] = await claim(store)
    assert got.command == "other"


async def test_a_change_never_brings_an_occurrence_back(bench: Bench, store: Store) -> None:
    """As when the server's clock was set back after it."""
    made = await put(store)
    ahead_ms = int(time.time() * 1000) + 7_200_000
    await bench.client.hset(bench.keys.schedule("nightly"), "last", str(ahead_ms))
    changed, created = await store.schedules.put("nightly", hourly())
    assert not created
    assert changed.next_at_ms is not None
    assert changed.next_at_ms > ahead_ms
    assert changed.created_at_ms == made.created_at_ms


async def test_changes_at_once_are_all_made_one_after_the_other(bench: Bench) -> None:
    stores = [bench.store() for _ in range(4)]
    made = await asyncio.gather(*(put(store, work={"command": f"c{n}"}) for n, store in enumerate(stores)))
    assert len({one.version for one in made}) == 4
    assert await bench.client.zcard(bench.keys.schedules) == 1


async def test_a_run_that_is_asked_for_twice_with_a_key_is_one(store: Store) -> None:
    seen = await put(store)
    runs = [
        await occurrence.submit(
            store, seen, expand(seen.definition), kind=Kind.RUN, at_ms=1000 + n, salt=str(n), key="k"
        )
        for n in range(2)
    ]
    assert runs[0].ids == runs[1].ids
    assert [run.repeated for run in runs] == [False, True]


async def test_schedules_are_listed_by_name_page_by_page(store: Store) -> None:
    for name in ("b", "a", "d", "c"):
        await store.schedules.put(name, definition(paused=name == "b"))
    first = await store.schedules.page(3, None)
    second = await store.schedules.page(3, first.next_cursor)
    assert [one.name for one in (*first.schedules, *second.schedules)] == ["a", "b", "c", "d"]
    assert second.next_cursor is None


async def test_a_deleted_schedule_is_gone_and_its_jobs_stay(bench: Bench, store: Store) -> None:
    await put(store)
    await make_due(bench)
    await fire(store)
    await store.schedules.delete("nightly")
    with pytest.raises(NotFound):
        await store.schedules.get("nightly")
    with pytest.raises(NotFound):
        await store.schedules.delete("nightly")
    assert len(await all_jobs(store)) == 1
    assert [key async for key in bench.client.scan_iter(f"{bench.keys.prefix}schedule*")] == []


# --- what goes wrong --------------------------------------------------------------------------------------------------


async def test_an_occurrence_waits_for_room_in_its_queue(bench: Bench, store: Store) -> None:
    await limit_queue(store, "default", 1)
    await submit(store, new_job())
    await put(store, catch_up=CatchUp.LAST)
    await make_due(bench)
    assert await fire(store) == 0
    assert await bench.client.zscore(bench.keys.schedules_due, "nightly") > time.time() * 1000
    await end_all(store)
    await make_due(bench)
    assert await fire(store) == 1


async def test_invalid_work_of_a_schedule_is_refused_and_reported(bench: Bench, store: Store) -> None:
    await put(store)
    await make_due(bench)
    await bench.client.hset(bench.keys.schedule("nightly"), "job", '{"command": ""}')
    assert await fire(store) == 0
    [run] = (await store.schedules.get("nightly")).runs
    assert run.outcome is RunOutcome.REFUSED
    assert "no longer valid" in (run.error or "")
    assert (await fire(store), await outcomes(store)) == (0, [(RunOutcome.REFUSED, 1)])


@pytest.mark.damaged
async def test_a_damaged_schedule_does_not_hold_up_others(bench: Bench, store: Store) -> None:
    await put(store)
    for n in range(120):
        await bench.client.zadd(bench.keys.schedules_due, {f"broken{n}": 1})
        await bench.client.set(bench.keys.schedule(f"broken{n}"), "x")
    await bench.client.set(bench.keys.schedule_runs("nightly"), "no list")
    await make_due(bench)
    assert await fire(store) == 1
    assert len(await all_jobs(store)) == 1
    with pytest.raises(StoreBroken):
        await store.schedules.get("broken0")


async def test_a_pass_says_when_the_next_occurrence_comes(bench: Bench, store: Store) -> None:
    await put(store)
    soon_ms = int(time.time() * 1000) + 700
    await make_due(bench, soon_ms)
    fired = await Firing(store).fire()
    assert fired.next_in_ms is not None
    assert 0 < fired.next_in_ms <= 700


async def test_retried_work_is_unfinished_again(bench: Bench, store: Store) -> None:
    await put(store, overlap=Overlap.SKIP, work={"command": "false", "max_attempts": 1})
    await make_due(bench)
    await fire(store)
    [job_id] = await all_jobs(store)
    await store.cancel(job_id)
    assert (await store.job(job_id)).status is Status.CANCELLED
    await store.retry(job_id)
    await make_due(bench)
    await fire(store)
    # It had not been looked at while it was cancelled, so it still counts.
    assert await outcomes(store) == [(SKIPPED, 1), (FIRED, 1)]


# --- clocks and restarts ----------------------------------------------------------------------------------------------


async def test_a_clock_that_was_ahead_lets_nothing_fire_twice(bench: Bench, store: Store) -> None:
    """Set back by an hour: what has fired is not due again until its next time comes."""
    await store.schedules.put("nightly", hourly())
    await make_due(bench, full_hour_ms())
    assert await fire(store) == 1
    seen = await store.schedules.get("nightly")
    assert seen.next_at_ms is not None
    assert plan(seen, full_hour_ms() - HOUR_MS) is None
    late = occurrence.submit(store, seen, expand(seen.definition), kind=Kind.NEXT, at_ms=seen.next_at_ms)
    with pytest.raises(IdempotencyConflict):  # its time has not come on the server
        await late
    assert len(await all_jobs(store)) == 1


async def test_a_clock_that_jumps_ahead_misses_what_lies_between(bench: Bench, store: Store) -> None:
    await store.schedules.put("nightly", hourly())
    seen = await store.schedules.get("nightly")
    assert seen.next_at_ms is not None
    step = plan(seen, seen.next_at_ms + 5 * HOUR_MS + 1)
    assert step is not None
    assert (step.at_ms, step.missed, step.following_ms) == (seen.next_at_ms, 4, seen.next_at_ms + 4 * HOUR_MS)


async def test_a_clock_that_was_wrong_by_days_does_not_silence_a_schedule_that_is_put_again(
    bench: Bench, store: Store
) -> None:
    await put(store)
    far_ms = int(time.time() * 1000) + 400 * 24 * HOUR_MS
    await bench.client.hset(bench.keys.schedule("nightly"), mapping={"last": far_ms, "next": far_ms + HOUR_MS})
    changed, _ = await store.schedules.put("nightly", hourly())
    assert changed.next_at_ms == full_hour_ms(-1)


async def test_a_full_server_starts_nothing_and_makes_up_for_it(bench: Bench, store: Store) -> None:
    await put(store)
    await make_due(bench)
    await bench.client.hset(bench.keys.meta, "full", "1")
    assert await fire(store) == 0
    assert await outcomes(store) == []
    await bench.client.hdel(bench.keys.meta, "full")
    await bench.client.zadd(bench.keys.schedules_due, {"nightly": 1})
    assert await fire(store) == 1


async def test_a_reaper_starts_an_occurrence_when_its_time_comes_not_with_its_next_pass(
    bench: Bench, store: Store, wait_until: WaitUntil
) -> None:
    await put(store)
    due_ms = await make_due(bench, int(time.time() * 1000) + 600)
    stopping = asyncio.Event()
    running = asyncio.create_task(Reaper(bench.store(), every_s=30).run(stopping))

    async def fired() -> bool:
        return bool((await store.schedules.get("nightly")).runs)

    await wait_until(fired)
    stopping.set()
    await running
    [run] = (await store.schedules.get("nightly")).runs
    assert (run.at_ms, run.outcome) == (due_ms, FIRED)
    assert 0 <= run.recorded_at_ms - due_ms < 2000
