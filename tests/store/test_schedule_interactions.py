"""Schedules whose work keeps others off, is large, or long overdue: what falls between schedules and the rest."""

import threading
from typing import Any

import pytest

from reaper import firing
from tests.builders import claim, finish, new_job, submit
from tests.schedules import RARE, fire, full_hour_ms, make_due, outcomes, put, workflow
from tests.servers import Bench
from workron.models import OnConflict, Status, Unique, Until
from workron.schedules.models import Overlap, RunOutcome
from workron.schedules.plan import plan
from workron.store import Store

FIRED, MISSED, REFUSED, SKIPPED = RunOutcome.FIRED, RunOutcome.MISSED, RunOutcome.REFUSED, RunOutcome.SKIPPED


def unique(on_conflict: str) -> dict[str, object]:
    return {"command": "true", "unique": {"key": "k", "on_conflict": on_conflict}}


async def hold_the_key(store: Store) -> str:
    [holder] = await submit(store, new_job(unique=Unique("k", Until.FINISHED, OnConflict.REJECT, 60_000)))
    return holder


@pytest.mark.parametrize("overlap", Overlap)
async def test_an_occurrence_whose_key_another_job_holds_is_not_reported_as_fired(
    bench: Bench, store: Store, overlap: Overlap
) -> None:
    holder = await hold_the_key(store)
    await put(store, work=unique("return"), overlap=overlap)
    for _ in range(2):
        await make_due(bench)
        assert await fire(store) == 0
    schedule = await store.schedules.get("nightly")
    assert schedule.counts[FIRED] == 0
    [run] = schedule.runs
    assert (run.outcome, run.count, run.job) == (SKIPPED, 2, None)
    assert run.error == f"job {holder} holds its unique key"
    [got] = await claim(store)
    await finish(store, got)
    await make_due(bench)
    assert await fire(store) == 1


@pytest.mark.parametrize(("on_conflict", "outcome"), [("reject", REFUSED), ("replace", FIRED)])
async def test_the_outcome_of_an_occurrence_with_a_unique_key_is_reported(
    bench: Bench, store: Store, on_conflict: str, outcome: RunOutcome
) -> None:
    holder = await hold_the_key(store)
    await put(store, work=unique(on_conflict))
    await make_due(bench)
    await fire(store)
    assert await outcomes(store) == [(outcome, 1)]
    assert ((await store.job(holder)).status is Status.CANCELLED) is (outcome is FIRED)


async def test_leases_are_checked_while_weeks_of_missed_minutes_are_counted(
    bench: Bench, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.schedules.put("often", RARE)
    await make_due(bench, full_hour_ms(ago=16), "often")
    await bench.client.hset(bench.keys.schedule("often"), "cron", "* * * * *")
    beside: list[bool] = []

    def watched(*of: Any) -> Any:
        beside.append(threading.current_thread() is not threading.main_thread())
        return plan(*of)

    monkeypatch.setattr(firing, "plan", watched)
    assert await fire(store) in (2, 3)  # the last missed one, the one in time, and a minute may begin meanwhile
    assert beside[0]
    counts = (await store.schedules.get("often")).counts
    assert counts[MISSED] in range(959, 1020)


async def test_a_workflow_that_another_reaper_gives_up_while_it_is_staged_is_no_outage_and_fires_with_the_next_pass(
    bench: Bench, store: Store
) -> None:
    await store.schedules.put("nightly", workflow(900))
    await make_due(bench)
    opened = store.scripts.submission_open

    async def given_up_before(**about: Any) -> object:
        await bench.store().scripts.submission_abort(about["batch"], 0)
        return await opened(**about)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store.scripts, "submission_open", given_up_before)
        assert await fire(store) == 0
    assert await bench.client.zcard(bench.keys.jobs) == 0
    assert await fire(store) == 1
    assert await bench.client.zcard(bench.keys.jobs) == 900
