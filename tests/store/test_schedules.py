"""Schedules: each occurrence is started once, whoever looks and whoever dies."""

import asyncio
import time
from typing import Any

import pytest

from tests.builders import claim, finish
from tests.schedules import (
    HOUR_MS,
    definition,
    fire,
    full_hour_ms,
    hourly,
    make_due,
    outcomes,
    put,
    workflow,
)
from tests.servers import Bench
from workron import ids
from workron.errors import IdempotencyConflict
from workron.models import JobFilter
from workron.schedules.models import CatchUp, Overlap, RunOutcome
from workron.schedules.plan import Kind
from workron.specs.schedule import expand
from workron.store import Store, occurrence
from workron.store.occurrence import first_id

FIRED, SKIPPED, MISSED = RunOutcome.FIRED, RunOutcome.SKIPPED, RunOutcome.MISSED


async def all_jobs(store: Store) -> list[str]:
    return [job.id for job in (await store.list_jobs(JobFilter(), limit=1000)).jobs]


async def end_all(store: Store) -> None:
    for got in await claim(store, limit=50):
        await finish(store, got)


async def test_a_due_occurrence_becomes_a_job_that_knows_which_one_it_is(bench: Bench, store: Store) -> None:
    made = await put(store)
    assert await fire(store) == 0
    due_ms = await make_due(bench)
    assert await fire(store) == 1
    schedule = await store.schedules.get("nightly")
    [run] = schedule.runs
    assert (run.at_ms, run.outcome, run.job) == (due_ms, FIRED, first_id(made, due_ms))
    assert schedule.next_at_ms == made.next_at_ms
    [got] = await claim(store)
    assert got.id == run.job
    assert got.env["WORKRON_SCHEDULE"] == "nightly"
    assert got.env["WORKRON_SCHEDULED_AT"].endswith("Z")
    await finish(store, got)


async def test_of_many_reapers_at_once_one_starts_the_occurrence(bench: Bench) -> None:
    stores = [bench.store() for _ in range(5)]
    await put(stores[0])
    for _ in range(5):
        await make_due(bench)
        assert sum(await asyncio.gather(*map(fire, stores))) == 1
    assert len(await all_jobs(stores[0])) == 5
    assert (await stores[0].schedules.get("nightly")).counts[FIRED] == 5


@pytest.mark.large
async def test_many_schedules_that_are_due_together_all_fire(bench: Bench, store: Store) -> None:
    for n in range(250):
        await store.schedules.put(f"s{n}", definition())
        await make_due(bench, name=f"s{n}")
    assert await fire(store) == 250
    assert len(await all_jobs(store)) == 250


async def test_a_late_reaper_starts_no_planned_occurrence_even_if_the_job_is_gone(bench: Bench, store: Store) -> None:
    seen = await put(store)
    due_ms = await make_due(bench)
    await fire(store)
    await bench.client.delete(bench.keys.job(first_id(seen, due_ms)))
    await bench.client.delete(bench.keys.pending("default", 5), bench.keys.jobs, bench.keys.meta)
    await bench.client.hdel(bench.keys.queue("default"), "pending")
    late = occurrence.submit(store, seen, expand(seen.definition), kind=Kind.NEXT, at_ms=due_ms)
    with pytest.raises(IdempotencyConflict):
        await late
    assert await all_jobs(store) == []


@pytest.mark.parametrize("change", ["put", "pause", "delete", "delete and put"])
async def test_a_schedule_that_is_changed_while_it_fires_fires_as_it_is_by_then_or_not_at_all(
    bench: Bench, store: Store, change: str
) -> None:
    await put(store)
    due_ms = await make_due(bench)
    seen = await store.schedules.get("nightly")
    if change == "put":
        await put(store, work={"command": "other"})
    elif change == "pause":
        await store.schedules.pause("nightly", paused=True)
    else:
        await store.schedules.delete("nightly")
        if change == "delete and put":
            await put(store)
    with pytest.raises(IdempotencyConflict):
        await occurrence.submit(store, seen, expand(seen.definition), kind=Kind.NEXT, at_ms=due_ms)
    assert await fire(store) == (change == "put")
    assert [got.command for got in await claim(store)] == (["other"] if change == "put" else [])


async def test_an_occurrence_has_the_same_ids_whichever_reaper_starts_it(bench: Bench) -> None:
    first, second = bench.store(), bench.store()
    seen = await put(first)
    assert first_id(seen, 1000) == first_id(await second.schedules.get("nightly"), 1000)
    assert first_id(seen, 1000) != first_id(seen, 2000)
    assert ids.is_id(first_id(seen, 1000))
    await first.schedules.delete("nightly")
    assert first_id(await put(first), 1000) != first_id(seen, 1000)


async def test_the_reply_of_a_fired_occurrence_may_be_lost(bench: Bench, store: Store) -> None:
    """The connection sends the same call again then: the schedule has moved on, and nothing is stored."""
    await put(store)
    await make_due(bench)
    run = store.scripts._run

    async def twice(name: str, *args: Any, **options: Any) -> object:
        if name == "job_submit":
            await run(name, *args, **options)
        return await run(name, *args, **options)

    store.scripts._run = twice  # type: ignore[method-assign]
    await fire(store)
    assert len(await all_jobs(store)) == 1
    assert await outcomes(store) == [(FIRED, 1)]


# --- workflows --------------------------------------------------------------------------------------------------------


async def test_a_workflow_fires_whole(bench: Bench, store: Store) -> None:
    await store.schedules.put("nightly", workflow(3))
    await make_due(bench)
    assert await fire(store) == 1
    [run] = (await store.schedules.get("nightly")).runs
    assert run.job is None
    assert run.workflow is not None
    made = await store.workflow(run.workflow)
    assert (made.name, made.size) == ("w", 3)


async def test_a_workflow_of_many_calls_fires_once_though_many_stage_it(bench: Bench) -> None:
    stores = [bench.store() for _ in range(3)]
    await stores[0].schedules.put("nightly", workflow(900))
    await make_due(bench)
    assert sum(await asyncio.gather(*map(fire, stores))) >= 1
    for store in stores:
        await store.maintenance.tidy()
    assert await bench.client.zcard(bench.keys.jobs) == 900
    assert (await stores[0].schedules.get("nightly")).counts[FIRED] == 1


async def die_while_staging(bench: Bench, due_ms: int) -> None:
    """Stage all chunks, as a reaper does that dies before it opens them."""
    dying = bench.store()
    seen = await dying.schedules.get("nightly")

    async def never(*_: object, **__: object) -> None:
        raise asyncio.CancelledError

    dying.scripts.submission_open = never  # type: ignore[method-assign,assignment]
    dying.scripts.submission_abort = never  # type: ignore[method-assign,assignment]
    with pytest.raises(asyncio.CancelledError):
        await occurrence.submit(dying, seen, expand(seen.definition), kind=Kind.NEXT, at_ms=due_ms)


async def test_a_workflow_that_was_half_staged_when_its_reaper_died_is_fired_by_another(
    bench: Bench, store: Store
) -> None:
    await store.schedules.put("nightly", workflow(900))
    due_ms = await make_due(bench)
    await die_while_staging(bench, due_ms)
    assert await bench.client.zcard(bench.keys.jobs) == 0
    assert await fire(store) == 1
    assert await bench.client.zcard(bench.keys.jobs) == 900
    assert await outcomes(store) == [(FIRED, 1)]


async def test_a_workflow_that_is_changed_when_it_was_half_staged_is_fired_as_it_is_by_then(
    bench: Bench, store: Store
) -> None:
    await store.schedules.put("nightly", workflow(900))
    due_ms = await make_due(bench)
    await die_while_staging(bench, due_ms)
    jobs = [{"name": f"j{n}", "command": "other"} for n in range(900)]
    await store.schedules.put("nightly", workflow(900, work={"jobs": jobs}))
    assert await fire(store) == 1
    assert {job.command for job in (await store.list_jobs(JobFilter(), limit=1000)).jobs} == {"other"}
    for batch in await bench.client.zrange(bench.keys.batches, 0, -1):
        while (await store.scripts.submission_abort(batch.decode(), 0))[0] == b"MORE":
            pass


async def test_a_workflow_that_was_given_up_is_fired_under_other_ids(bench: Bench, store: Store) -> None:
    made, _ = await store.schedules.put("nightly", workflow(900))
    due_ms = await make_due(bench)
    batch = first_id(made, due_ms)
    await bench.client.hset(bench.keys.batch(batch), "state", "aborted")
    assert await fire(store) == 1
    await bench.client.delete(bench.keys.batch(batch))
    assert await bench.client.zcard(bench.keys.jobs) == 900


async def test_a_workflow_whose_schedule_is_deleted_while_it_is_staged_is_not_opened(
    bench: Bench, store: Store
) -> None:
    await store.schedules.put("nightly", workflow(900))
    due_ms = await make_due(bench)
    seen = await store.schedules.get("nightly")
    opened = store.scripts.submission_open

    async def deleted_before(**about: object) -> object:
        await store.schedules.delete("nightly")
        return await opened(**about)  # type: ignore[arg-type]

    store.scripts.submission_open = deleted_before  # type: ignore[method-assign]
    with pytest.raises(IdempotencyConflict):
        await occurrence.submit(
            store,
            seen,
            expand(seen.definition),
            kind=Kind.NEXT,
            at_ms=due_ms,
        )
    assert await all_jobs(store) == []


# --- overlap ----------------------------------------------------------------------------------------------------------


async def test_overlaps_are_allowed_by_default(bench: Bench, store: Store) -> None:
    await put(store)
    for _ in range(3):
        await make_due(bench)
        await fire(store)
    assert len(await all_jobs(store)) == 3


async def test_skip_passes_over_what_comes_while_one_is_unfinished(bench: Bench, store: Store) -> None:
    await put(store, overlap=Overlap.SKIP)
    for _ in range(3):
        await make_due(bench)
        await fire(store)
    assert await outcomes(store) == [(SKIPPED, 2), (FIRED, 1)]
    await end_all(store)
    await make_due(bench)
    assert await fire(store) == 1
    assert await outcomes(store) == [(FIRED, 1), (SKIPPED, 2), (FIRED, 1)]


async def test_queue_starts_one_when_the_one_before_has_ended(bench: Bench, store: Store) -> None:
    await put(store, overlap=Overlap.QUEUE)
    await make_due(bench)
    await fire(store)
    waiting_ms = await make_due(bench)
    await fire(store)
    assert (await store.schedules.get("nightly")).queued_at_ms == waiting_ms
    await make_due(bench)
    await fire(store)
    assert await outcomes(store) == [(SKIPPED, 1), (FIRED, 1)]
    assert await bench.client.zscore(bench.keys.schedules_due, "nightly") < time.time() * 1000 + 5000
    await end_all(store)
    await bench.client.zadd(bench.keys.schedules_due, {"nightly": 1})
    assert await fire(store) == 1
    schedule = await store.schedules.get("nightly")
    assert (schedule.queued_at_ms, schedule.runs[0].at_ms) == (None, waiting_ms)


async def test_an_unfinished_workflow_overlaps(bench: Bench, store: Store) -> None:
    await store.schedules.put("nightly", workflow(2, overlap=Overlap.SKIP))
    await make_due(bench)
    await fire(store)
    await end_all(store)  # j0: j1 comes after it
    await make_due(bench)
    assert await fire(store) == 0
    await end_all(store)
    await make_due(bench)
    assert await fire(store) == 1


async def test_what_was_started_by_hand_overlaps_too(bench: Bench, store: Store) -> None:
    seen = await put(store, overlap=Overlap.SKIP)
    await occurrence.submit(store, seen, expand(seen.definition), kind=Kind.RUN, at_ms=1000, salt="x")
    await make_due(bench)
    assert await fire(store) == 0
    assert await outcomes(store) == [(SKIPPED, 1), (RunOutcome.MANUAL, 1)]


# --- catching up ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("catch_up", "started", "missed"), [(CatchUp.NONE, 0, 4), (CatchUp.LAST, 1, 3), (CatchUp.ALL, 4, 0)]
)
async def test_after_hours_without_a_reaper(
    bench: Bench, store: Store, catch_up: CatchUp, started: int, missed: int
) -> None:
    await store.schedules.put("nightly", hourly(catch_up=catch_up, timezone="Etc/GMT+1"))
    newest_ms = full_hour_ms(1)  # an hour ago, and more
    await bench.client.hset(bench.keys.schedule("nightly"), "cron", f"0 {_hour(newest_ms)} * * *")
    await make_due(bench, newest_ms - 3 * 24 * HOUR_MS)
    assert await fire(store) == started
    schedule = await store.schedules.get("nightly")
    assert (schedule.counts[FIRED], schedule.counts[MISSED]) == (started, missed)
    assert schedule.next_at_ms == newest_ms + 24 * HOUR_MS
    if started:
        assert schedule.runs[0].at_ms == newest_ms


def _hour(at_ms: int) -> int:
    return (at_ms // HOUR_MS - 1) % 24  # GMT+1 is an hour behind


async def test_catching_up_is_done_in_steps_that_others_go_on_with(bench: Bench) -> None:
    first, second = bench.store(), bench.store()
    await first.schedules.put("nightly", hourly(catch_up=CatchUp.ALL))
    await make_due(bench, full_hour_ms(79))
    while await fire(first) + await fire(second):
        pass
    schedule = await first.schedules.get("nightly")
    assert schedule.counts[FIRED] in (80, 81)  # a full hour may have come meanwhile
    assert await bench.client.zcard(bench.keys.jobs) == schedule.counts[FIRED]
    assert len(schedule.runs) == 20


async def test_years_of_missed_minutes_are_counted_without_starting_them(bench: Bench, store: Store) -> None:
    await store.schedules.put("nightly", definition(cron="* * * * *"))
    await make_due(bench, full_hour_ms(100))
    while await fire(store) == 0:
        pass
    assert 100 * 60 <= (await store.schedules.get("nightly")).counts[MISSED] <= 101 * 60


async def test_a_start_within_a_minute_is_in_time(bench: Bench, store: Store) -> None:
    await put(store, catch_up=CatchUp.NONE)
    await make_due(bench, int(time.time() * 1000) - 40_000)
    assert await fire(store) == 1
