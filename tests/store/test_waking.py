"""Which moves of jobs wake a parked worker, and which do not."""

import pytest

from tests.builders import claim, finish, new_job, submit
from tests.parked import ask, unheard
from tests.servers import Bench
from workron.models import QueueChange

MINUTE_MS = 60_000


@pytest.mark.parametrize("delays", [(30 * MINUTE_MS, 1 * MINUTE_MS), (1 * MINUTE_MS, 30 * MINUTE_MS)])
async def test_of_jobs_that_are_submitted_together_the_soonest_decides_the_next_promotion(
    bench: Bench, delays: tuple[int, int]
) -> None:
    """The timer of a parked worker is set to what was due next before."""
    store = bench.store()
    await submit(store, new_job(queue="other", delay_ms=10 * MINUTE_MS))
    assert (await ask(store)).parked
    await submit(store, *(new_job(delay_ms=delay_ms) for delay_ms in delays))
    assert await unheard(bench, "w1") == [1]


async def test_a_release_wakes_the_worker_in_front_of_a_queue_that_is_full(bench: Bench) -> None:
    store = bench.store()
    await store.change_queue("default", QueueChange(max_running=1))
    (running, behind) = await submit(store, new_job(), new_job(queue="default"))
    (got,) = await claim(store, worker="w2")
    assert got.id == running
    assert (await ask(store)).parked
    await store.attempts.release([(got.id, got.fence)])
    assert await unheard(bench, "w1") == [1]
    assert [one.id for one in (await ask(store, limit=1)).claims] == [running]
    assert (await store.job(behind)).status == "pending"


async def test_the_end_of_a_job_wakes_no_worker_where_its_queue_has_no_gate(bench: Bench) -> None:
    store = bench.store()
    await store.change_queue("gated", QueueChange(max_running=1))
    await submit(store, new_job())
    (got,) = await claim(store, worker="w2")
    assert (await ask(store)).parked
    await finish(store, got)
    assert await unheard(bench, "w1") == [0]


async def test_a_cancel_wakes_no_worker_in_front_of_a_gate_where_nothing_has_run(bench: Bench) -> None:
    store = bench.store()
    await store.change_queue("default", QueueChange(paused=True))
    (waits,) = await submit(store, new_job())
    assert (await ask(store)).parked
    await store.cancel(waits)
    assert await unheard(bench, "w1") == [0]


async def test_a_job_of_a_workflow_ends_in_a_queue_with_a_gate(bench: Bench) -> None:
    """The count of the workflow has no gate."""
    store = bench.store()
    await store.change_queue("default", QueueChange(max_running=1))
    await store.submit([new_job(), new_job()], as_workflow=True)
    (first,) = await claim(store)
    await finish(store, first)
    (second,) = await claim(store)
    await finish(store, second)
    assert {job.status for job in await store.jobs([first.id, second.id]) if job} == {"done"}


@pytest.mark.damaged
async def test_a_worker_that_waits_elsewhere_is_not_woken_by_what_is_left_of_it_at_a_queue(bench: Bench) -> None:
    store = bench.store()
    assert (await ask(store, "w1", queues=("elsewhere",))).parked
    assert (await ask(store, "w2")).parked
    (until,) = await bench.client.zrange(bench.keys.parked("default"), 0, 0, withscores=True)
    await bench.client.zadd(bench.keys.parked("default"), {"w1": until[1] - 1})
    await submit(store, new_job())
    assert await unheard(bench, "w1", "w2") == [0, 1]
    assert await bench.client.zrange(bench.keys.parked("default"), 0, -1) == []
