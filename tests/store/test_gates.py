"""Queues that are paused, limited in how many run, or in how many start in a time."""

import asyncio
import time

import pytest

from tests.builders import SUCCESS, after, claim, finish, jobs, new_job, reap_all, submit
from tests.servers import Bench
from workron.errors import Conflict, NotFound
from workron.models import NO_LIMIT, ClaimRequest, Outcome, QueueChange, Rate, Reason, Result, Status
from workron.store import Store
from workron.store.maintenance import ROUSED

PAUSED = QueueChange(paused=True)
RESUMED = QueueChange(paused=False)


async def limit_running(store: Store, number: int) -> None:
    await store.change_queue("default", QueueChange(max_running=number))


async def parked(store: Store, worker: str, inbox: str = "inbox") -> None:
    request = ClaimRequest(worker, ["default"], 5, f"{worker}:1", park_ms=5_000, inbox=inbox)
    assert (await store.attempts.claim(request)).parked


async def woken(store: Store) -> str | None:
    """The worker that is woken next, where all wait through one inbox."""
    async with store.attempts.own_connection() as waiting:
        return await store.attempts.woken("inbox", waiting)


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


async def test_a_submission_to_a_paused_queue_starts_nothing(store: Store) -> None:
    await store.change_queue("default", PAUSED)
    await parked(store, "w1")
    await submit(store, new_job())
    assert await woken(store) == "w1"
    assert await claim(store, worker="w1") == []


async def test_a_queue_runs_at_most_max_running_jobs(store: Store) -> None:
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


async def test_a_parked_worker_starts_the_next_job_as_soon_as_a_slot_is_free(store: Store) -> None:
    await limit_running(store, 1)
    await submit(store, *jobs(2))
    [first] = await claim(store)
    await parked(store, "w2")
    await finish(store, first)
    assert await woken(store) == "w2"


async def test_a_parked_worker_is_woken_when_a_queue_is_resumed(store: Store) -> None:
    await store.change_queue("default", PAUSED)
    await submit(store, new_job())
    await parked(store, "w2")
    await store.change_queue("default", RESUMED)
    assert await woken(store) == "w2"


async def test_a_rate_limits_the_starts_in_its_period(store: Store) -> None:
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


async def test_of_many_queues_only_the_first_hundred_were_woken_as_their_rates_allow(store: Store) -> None:
    """An API server asks for the queues of all that wait there; the others came with the reaper's rounds."""
    await store.change_queue("default", QueueChange(rate=Rate(1, 50)))
    await submit(store, *jobs(2))
    await claim(store)
    await parked(store, "w2")
    await asyncio.sleep(0.06)
    await store.maintenance.promote([*(f"before-{number}" for number in range(ROUSED)), "default"])
    assert await woken(store) == "w2"


@pytest.mark.large
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
    with pytest.raises(Conflict, match="has 1 job,"):
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


async def test_a_worker_that_took_one_of_two_free_slots_left_the_next_worker_asleep(store: Store) -> None:
    await limit_running(store, 2)
    await submit(store, *jobs(6))
    running = await claim(store, limit=2)
    await parked(store, "w2")
    await parked(store, "w3")
    await store.attempts.finish([Result(one.id, one.fence, SUCCESS) for one in running], worker="w1")
    told = [await woken(store)]
    assert len(await claim(store, worker="w2")) == 1
    told.append(await woken(store))
    assert told == ["w2", "w3"]


async def test_more_gates_than_are_named_still_hold(store: Store) -> None:
    for number in range(60):
        await store.change_queue(f"q{number}", PAUSED)
    await submit(store, new_job(queue="q59"), new_job(queue="open"))
    assert [one.queue for one in await claim(store, queues=["q59", "open"], limit=5)] == ["open"]
    for number in range(60):
        await store.change_queue(f"q{number}", RESUMED)
    assert len(await claim(store, queues=["q59"])) == 1
    await store.change_queue("q59", PAUSED)
    await submit(store, new_job(queue="q59"))
    assert await claim(store, queues=["q59"]) == []


async def test_a_rate_that_was_made_smaller_counts_what_has_started_before(store: Store) -> None:
    await store.change_queue("default", QueueChange(rate=Rate(5, 60_000)))
    await submit(store, *jobs(10))
    assert len(await claim(store, limit=3)) == 3
    await store.change_queue("default", QueueChange(rate=Rate(2, 60_000)))
    assert await claim(store, limit=3) == []
    await store.change_queue("default", QueueChange(rate=Rate(4, 60_000)))
    assert len(await claim(store, limit=3)) == 1


async def test_the_end_of_a_job_wakes_only_where_a_gate_may_have_held_others_up(store: Store, bench: Bench) -> None:
    await store.change_queue("other", PAUSED)
    await submit(store, new_job())
    [one] = await claim(store)
    await parked(store, "w2")
    await finish(store, one)
    assert await bench.client.llen(bench.keys.inbox("inbox")) == 0


async def test_queues_are_named_again_when_there_are_no_longer_too_many_with_a_gate(store: Store, bench: Bench) -> None:
    """It stayed so for ever: each claim asked each queue."""
    for number in range(60):
        await store.change_queue(f"q{number}", PAUSED)
    assert await bench.client.hget(bench.keys.meta, "gated") == b"*"
    for number in range(58):
        await store.change_queue(f"q{number}", RESUMED)
    named = await bench.client.hget(bench.keys.meta, "gated")
    assert set(named.split()) == {b"q58", b"q59"}
    for number in (58, 59):
        await store.change_queue(f"q{number}", RESUMED)
    assert await bench.client.hget(bench.keys.meta, "gated") is None


async def test_of_more_starts_than_a_lowered_rate_allows_a_claim_reads_only_the_counted_ones(
    store: Store, bench: Bench
) -> None:
    """It read all of them: thousands, with each claim, until they were too old."""
    await store.change_queue("default", QueueChange(rate=Rate(1000, 60_000)))
    await submit(store, *jobs(10))
    now = int(time.time() * 1000)
    old, recent = now - 90_000, now
    unreadable = ["x"] * 900  # a claim that reads one of them fails
    await bench.client.rpush(bench.keys.starts("default"), *unreadable, old, recent)
    await store.change_queue("default", QueueChange(rate=Rate(2, 60_000)))
    assert len(await claim(store, limit=5)) == 1, "of the last two starts one is too old to count"
    assert await claim(store, limit=5) == []
    assert await bench.client.llen(bench.keys.starts("default")) == 2
