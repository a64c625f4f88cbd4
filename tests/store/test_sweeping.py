"""Sweeping costs what has ended, not what is kept, and makes room until there is some."""

from typing import Any

import pytest

from reaper.reaper import Reaper
from tests.builders import claim, finish, jobs, new_job, submit
from tests.counting import commands_of
from tests.servers import Bench
from workron.errors import StoreBroken
from workron.store import Store, retention
from workron.store.policy import Policy

AT_ONCE = Policy(lease_ms=300, pass_ms=100, stop_ms=500, retention_done_ms=0, retention_failed_ms=0)
LATER = Policy(lease_ms=300, pass_ms=100, stop_ms=500)


async def end_all(store: Store) -> None:
    while got := await claim(store, limit=50):
        for one in got:
            await finish(store, one)


async def kept(store: Store, number: int) -> str:
    """Have so many jobs end whose workflow goes on; returns the one that has not ended."""
    late = new_job(delay_ms=600_000)
    await store.submit([*jobs(number), late], as_workflow=True)
    await end_all(store)
    return late.id


@pytest.mark.large
async def test_jobs_that_are_kept_were_checked_with_each_sweep(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "LOOKS", 5)
    store = bench.store(AT_ONCE)
    late = await kept(store, 150)
    with commands_of(store) as counted:
        assert (await store.maintenance.sweep()).deleted == 0
    assert counted["EVALSHA"] >= 30
    for _ in range(3):
        with commands_of(store) as counted:
            assert (await store.maintenance.sweep()).deleted == 0
        assert counted["EVALSHA"] <= 20
    (loner,) = await submit(store, new_job())
    await end_all(store)
    assert (await store.maintenance.sweep()).deleted == 1  # though so many are kept before it
    assert await store.jobs([loner]) == [None]
    await store.cancel(late)
    deleted = 0
    for _ in range(15):
        deleted += (await store.maintenance.sweep()).deleted
    assert deleted == 151


async def make_full(bench: Bench, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Have the server be full as long as it holds more finished jobs than these."""

    async def excess(_: Any) -> float:
        return 0.5 if await bench.client.zcard(bench.keys.index(None, "done")) > most else 0.0

    monkeypatch.setattr(retention.Sweeper, "excess", excess)
    monkeypatch.setattr(retention, "SEEN_MS", 0)


async def test_a_full_server_forgot_so_many_jobs_and_no_more(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "DELETED", 5)
    monkeypatch.setattr(retention, "ROOM_CALLS", 2)
    await make_full(bench, monkeypatch, 40)
    store = bench.store(LATER)
    made = await submit(store, *jobs(100))
    await end_all(store)
    swept = await store.maintenance.sweep()
    assert (swept.early, swept.deleted, swept.more) == (60, 0, True)
    left = await store.jobs(made)
    assert [job is None for job in left] == [True] * 60 + [False] * 40  # the oldest have gone
    swept = await store.maintenance.sweep()
    assert (swept.early, swept.more) == (0, False)


@pytest.mark.large
async def test_a_full_server_looks_at_what_it_must_keep_for_a_bounded_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "LOOKS", 5)
    monkeypatch.setattr(retention, "ROOM_CALLS", 3)
    await make_full(bench, monkeypatch, 0)
    store = bench.store(LATER)
    await kept(store, 150)
    await submit(store, new_job())
    await end_all(store)
    with commands_of(store) as counted:
        await store.maintenance.sweep()
    assert counted["EVALSHA"] <= 16
    early = 0
    for _ in range(30):  # what may go is found behind them
        early += (await store.maintenance.sweep()).early
    assert early == 1


async def test_done_jobs_that_must_be_kept_left_a_full_server_no_turn_for_cancelled_ones(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "LOOKS", 5)
    monkeypatch.setattr(retention, "ROOM_CALLS", 3)
    await make_full(bench, monkeypatch, 0)
    store = bench.store(LATER)
    await kept(store, 150)
    (cancelled,) = await submit(store, new_job())
    await store.cancel(cancelled)
    assert (await store.maintenance.sweep()).early == 1
    assert await store.jobs([cancelled]) == [None]


@pytest.mark.damaged
async def test_an_index_that_cannot_be_read_keeps_no_jobs_of_another_status(bench: Bench) -> None:
    store = bench.store(AT_ONCE)
    await submit(store, *jobs(3))
    (cancelled,) = await submit(store, new_job())
    await store.cancel(cancelled)
    await end_all(store)
    await bench.client.set(bench.keys.index(None, "done"), "broken")
    with pytest.raises(StoreBroken):
        await store.maintenance.sweep()
    assert await store.jobs([cancelled]) == [None]


@pytest.mark.damaged
async def test_a_job_that_cannot_be_deleted_does_not_keep_the_jobs_behind_it(bench: Bench) -> None:
    store = bench.store(AT_ONCE)
    late = await kept(store, 1)
    made = await submit(store, *jobs(3))
    await end_all(store)
    workflow = (await store.job(late)).workflow
    assert workflow is not None
    await bench.client.set(bench.keys.workflow(workflow), "broken")
    await store.maintenance.sweep()
    assert await store.jobs(made) == [None] * 3


async def test_the_reaper_sweeps_on_with_the_next_pass_while_there_is_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reaper.reaper.SWEEP_EVERY_S", 3600)
    monkeypatch.setattr(retention, "SWEEP_S", 0)  # no time at all: it has always more to do
    reaper = Reaper(bench.store(AT_ONCE), every_s=1)
    assert (await reaper.keep_house()).swept is None
    monkeypatch.setattr("reaper.reaper.SWEEP_EVERY_S", 0)
    first = (await reaper.keep_house()).swept
    assert first is not None
    assert first.more
    monkeypatch.setattr("reaper.reaper.SWEEP_EVERY_S", 3600)
    monkeypatch.setattr(retention, "SWEEP_S", 60)
    last = (await reaper.keep_house()).swept
    assert last is not None
    assert not last.more
    assert (await reaper.keep_house()).swept is None


async def test_a_full_server_waited_up_to_ten_seconds_for_the_next_sweep(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_full(bench, monkeypatch, 2)
    store = bench.store(LATER)
    await submit(store, *jobs(5))
    await end_all(store)
    reaper = Reaper(store, every_s=0.1)
    assert (await reaper.keep_house()).swept is None
    await reaper.reap()
    swept = (await reaper.keep_house()).swept
    assert swept is not None
    assert swept.early == 5
