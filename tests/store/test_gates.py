"""Queues that are paused, limited in how many run, or in how many start in a time."""

import asyncio
import time

import pytest
from builders import SUCCESS, after, claim, finish, jobs, new_job, reap_all, submit
from servers import Bench

from workron.errors import Conflict, NotFound
from workron.models import NO_LIMIT, ClaimRequest, Outcome, QueueChange, Rate, Reason, Result, Status
from workron.store import Store

PAUSED = QueueChange(paused=True)
RESUMED = QueueChange(paused=False)


async def limit_running(store: Store, number: int) -> None:
    await store.change_queue("default", QueueChange(max_running=number))


async def parked(store: Store, worker: str, inbox: str = "inbox") -> None:
    request = ClaimRequest(worker, ["default"], 5, f"{worker}:1", park_ms=5_000, inbox=inbox)
    assert (await store.attempts.claim(request)).parked


async def test_nothing_of_a_paused_queue_is_started(store: Store) -> None:
    await submit(store, *jobs(3))
    queue = await store.change_queue("default", PAUSED)
    assert queue.paused
    assert queue.counts[Status.PENDING] == 3
    await submit(store, new_job(queue="other"))
    assert [one.queue for one in await claim(store, queues=["default", "other"], limit=5)] == ["other"]
    await store.change_queue("default", RESUMED)
    assert len(await claim(store, limit=5)) == 3


async def test_what_runs_goes_on_when_its_queue_is_paused(store: Store) -> None:
    await submit(store, *jobs(2))
    [running] = await claim(store)
    await store.change_queue("default", PAUSED)
    assert (await finish(store, running)).status is Status.DONE
    assert await claim(store) == []


async def test_a_queue_may_be_paused_before_it_holds_anything(store: Store) -> None:
    await store.change_queue("default", PAUSED)
    await submit(store, new_job())
    assert await claim(store) == []


async def test_a_submission_hands_nothing_over_from_a_paused_queue(store: Store, bench: Bench) -> None:
    await store.change_queue("default", PAUSED)
    await parked(store, "w1")
    (job_id,) = await submit(store, new_job())
    assert (await store.job(job_id)).status is Status.PENDING


async def test_no_more_jobs_of_a_queue_run_than_may(store: Store) -> None:
    await limit_running(store, 2)
    await submit(store, *jobs(5))
    first, second = await claim(store, limit=5)
    assert await claim(store, worker="w2", limit=5) == []
    exchanged = await store.attempts.finish(
        [Result(first.id, first.fence, SUCCESS)], ClaimRequest("w1", ["default"], 5, "x:1"), worker="w1"
    )
    assert len(exchanged.claimed.claims) == 1
    await store.change_queue("default", QueueChange(max_running=NO_LIMIT))
    assert len(await claim(store, limit=5)) == 2
    assert await store.attempts.release([(second.id, second.fence)]) == [Status.PENDING]


@pytest.mark.parametrize("how", ["done", "failed", "released", "lost", "cancelled"])
async def test_however_a_job_ends_its_place_is_free(store: Store, how: str) -> None:
    await limit_running(store, 1)
    await submit(store, *jobs(2, max_attempts=1))
    [one] = await claim(store)
    match how:
        case "done":
            await finish(store, one)
        case "failed":
            await finish(store, one, Outcome(Reason.EXIT_CODE, exit_code=1))
        case "released":
            await store.attempts.release([(one.id, one.fence)])
        case "cancelled":
            await store.cancel(one.id)
            await finish(store, one, Outcome(Reason.CANCELLED, signal=15))
        case "lost":
            await reap_all(store)
    assert len(await claim(store, wait=True)) == 1


async def test_who_is_parked_starts_the_next_job_in_the_moment_that_a_place_is_free(store: Store) -> None:
    await limit_running(store, 1)
    await submit(store, *jobs(2))
    [first] = await claim(store)
    await parked(store, "w2")
    news = asyncio.create_task(store.attempts.news("inbox", store._connection))
    await finish(store, first)
    told = await asyncio.wait_for(news, 5)
    assert told is not None
    assert told.worker == "w2"


async def test_who_is_parked_hears_that_a_queue_goes_on(store: Store) -> None:
    await store.change_queue("default", PAUSED)
    await submit(store, new_job())
    await parked(store, "w2")
    news = asyncio.create_task(store.attempts.news("inbox", store._connection))
    await store.change_queue("default", RESUMED)
    assert await asyncio.wait_for(news, 5) is not None


async def test_no_more_jobs_start_in_a_time_than_may(store: Store) -> None:
    await store.change_queue("default", QueueChange(rate=Rate(2, 400)))
    await submit(store, *jobs(5))
    began = time.monotonic()
    assert len(await claim(store, limit=5)) == 2
    claimed = await store.attempts.claim(ClaimRequest("w2", ["default"], 5, "w2:1"))
    assert claimed.claims == ()
    assert claimed.next_due_in_ms is not None
    assert 0 < claimed.next_due_in_ms <= 400
    assert len(await claim(store, worker="w3", limit=5, wait=True)) == 2
    assert time.monotonic() - began >= 0.35
    assert len(await claim(store, worker="w4", limit=5, wait=True)) == 1


async def test_held_jobs_are_not_looked_at(bench: Bench) -> None:
    store = bench.store()
    await limit_running(store, 1)
    await store.submit(jobs(3000))
    await claim(store)
    await submit(store, new_job(queue="other"))
    before = (await bench.client.info("commandstats")) if bench.url else None
    [other] = await claim(store, queues=["default", "other"])
    assert other.queue == "other"
    if before is not None:
        after_it = await bench.client.info("commandstats")
        calls = {name: row["calls"] - before.get(name, {"calls": 0})["calls"] for name, row in after_it.items()}
        assert calls["cmdstat_lmpop"] == 1


async def test_a_purge_cancels_what_is_ready_to_run(store: Store) -> None:
    ids = await submit(store, *jobs(250))
    later = new_job(delay_ms=60_000)
    child = new_job(queue="other", depends_on=after(ids[0]))
    await submit(store, later, child)
    [running] = await claim(store)
    assert running.id == ids[0]
    assert await store.purge_queue("default") == (249, False)
    assert (await store.job(ids[1])).status is Status.CANCELLED
    assert (await store.job(later.id)).status is Status.SCHEDULED
    assert (await store.job(running.id)).status is Status.RUNNING
    assert await store.purge_queue("default") == (0, False)


async def test_a_queue_without_jobs_is_removed_with_what_was_set_for_it(store: Store) -> None:
    await store.change_queue("default", PAUSED)
    (job_id,) = await submit(store, new_job())
    with pytest.raises(Conflict, match="holds 1 jobs"):
        await store.remove_queue("default")
    await store.cancel(job_id)
    with pytest.raises(Conflict):
        await store.remove_queue("default")
    await store.change_queue("empty", QueueChange(max_running=1))
    await store.remove_queue("empty")
    assert [queue.name for queue in await store.queues()] == ["default"]
    with pytest.raises(NotFound):
        await store.remove_queue("empty")


async def test_limits_show_and_go(store: Store) -> None:
    set_ = await store.change_queue("q", QueueChange(max_pending=5, max_running=3, rate=Rate(10, 60_000), paused=True))
    assert (set_.max_pending, set_.max_running, set_.rate, set_.paused) == (5, 3, Rate(10, 60_000), True)
    await store.change_queue("q", QueueChange(max_pending=NO_LIMIT, max_running=NO_LIMIT, rate=NO_LIMIT, paused=False))
    assert await store.queues() == []
