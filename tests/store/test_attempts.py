"""Claims, ends and reaping in detail: each test fails for a small change that the others let pass."""

import asyncio
import dataclasses

import pytest

from tests.builders import WORKER, claim, finish, new_job, reap_all, submit
from tests.servers import USUAL, Bench
from workron.models import (
    Cancelled,
    ClaimRequest,
    Outcome,
    Reason,
    Status,
    Verdict,
)
from workron.store import Store
from workron.store.policy import Policy

FAILURE = Outcome(Reason.EXIT_CODE, exit_code=1, error="exit code 1")
LONG = Policy(lease_ms=30_000, pass_ms=100, retry_ms=20)


async def test_a_fence_is_higher_than_what_the_caller_has_seen(bench: Bench) -> None:
    """Redis came back from an older state, and its clock is behind."""
    store = bench.store()
    await submit(store, new_job())
    store.attempts._floor = 9_000_000_000_000
    (got,) = await claim(store)
    assert got.fence == 9_000_000_000_001


async def test_a_fence_is_higher_than_the_last_one_though_the_clock_went_back(bench: Bench) -> None:
    store = bench.store()
    await submit(store, new_job())
    await bench.client.hset(bench.keys.meta, "fence", 9_000_000_000_000)
    (got,) = await claim(bench.store())
    assert got.fence == 9_000_000_000_001


@pytest.mark.damaged
async def test_an_id_in_the_list_of_another_queue_or_priority_is_dropped(bench: Bench) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job(queue="a", priority=7))
    await bench.client.rpush(bench.keys.pending("b", 7), job_id)
    await bench.client.rpush(bench.keys.pending("a", 5), job_id)
    assert await claim(store, queues=["b"]) == []
    await bench.client.delete(bench.keys.pending("a", 7))
    assert await claim(store, queues=["a"]) == []
    assert (await store.job(job_id)).status is Status.PENDING


async def test_a_repeated_request_does_not_get_a_job_that_another_worker_runs_by_now(store: Store) -> None:
    await submit(store, new_job())
    request = ClaimRequest("w1", ["default"], 1, "boot:7")
    (first,) = (await store.attempts.claim(request)).claims
    await store.attempts.release([(first.id, first.fence)])
    assert await claim(store, worker="w2")
    assert (await store.attempts.claim(request)).claims == ()


async def test_what_a_late_copy_of_an_empty_request_claims_is_what_its_repeat_gets(store: Store) -> None:
    """The request stays the same until it gets something: jobs claimed by a copy whose reply nobody reads are found."""
    request = ClaimRequest("w", ("default",), 1, "b:6")
    assert (await store.attempts.claim(request)).claims == ()
    await submit(store, new_job(), new_job())
    late_copy = await store.attempts.claim(request)
    assert (await store.attempts.claim(request)).claims == late_copy.claims
    assert len(late_copy.claims) == 1


async def test_an_empty_answer_leaves_nothing_behind_and_a_remembered_one_expires(bench: Bench) -> None:
    store = bench.store()
    key = f"{bench.keys.worker('w1')}:claim"
    await claim(store)
    assert not await bench.client.exists(key)
    await submit(store, new_job())
    await claim(store)
    assert 0 < await bench.client.pttl(key) <= 3_600_000


async def test_a_claim_that_is_repeated_after_an_outage_of_two_leases_costs_no_attempt(bench: Bench) -> None:
    """[Redis forgot the request after two leases: the job was reaped, and its attempt counted.]"""
    store = bench.store()
    (job_id,) = await submit(store, new_job(max_attempts=1))
    request = ClaimRequest("w1", ("default",), 1, "b:1")
    first = await store.attempts.claim(request)
    record = f"{bench.keys.worker('w1')}:claim"
    await bench.client.pexpire(record, await bench.client.pttl(record) - 20 * USUAL.lease_ms)  # as much time passes
    again = await store.attempts.claim(request)
    assert [(one.id, one.fence) for one in again.claims] == [(job_id, first.claims[0].fence)]


@pytest.mark.parametrize(("request_id", "long"), [("b:1", True), ("an-id-of-the-api", False)])
async def test_workers_with_a_new_name_for_each_call_left_a_record_for_an_hour(
    bench: Bench, request_id: str, long: bool
) -> None:
    """A call without an id of the client's own is never repeated: its record need not outlast the lease for long."""
    store = bench.store()
    await submit(store, new_job())
    request = ClaimRequest("w1", ("default",), 1, request_id)
    for _ in range(2):
        assert len((await store.attempts.claim(request)).claims) == 1
        assert (await bench.client.pttl(f"{bench.keys.worker('w1')}:claim") > 2 * USUAL.lease_ms) is long


async def test_a_request_that_ended_is_forgotten_soon(bench: Bench) -> None:
    store = bench.store()
    await submit(store, new_job())
    request = ClaimRequest("w1", ("default",), 1, "b:1")
    await store.attempts.claim(request)
    await store.attempts.claim(dataclasses.replace(request, limit=0))
    assert 0 < await bench.client.pttl(f"{bench.keys.worker('w1')}:claim") <= 2 * USUAL.lease_ms


async def test_due_jobs_of_another_queue_do_not_look_like_an_empty_queue(bench: Bench) -> None:
    store = bench.store()
    await submit(store, *(new_job(queue="other", delay_ms=1) for _ in range(150)))
    await asyncio.sleep(0.02)
    answer = await store.attempts.claim(ClaimRequest("w", ["default"], 1, "b:1"))
    assert (answer.claims, answer.more) == ((), True)


async def test_a_result_after_the_reaper_ended_the_job_is_refused(store: Store) -> None:
    await submit(store, new_job(max_attempts=1))
    (got,) = await claim(store)
    await reap_all(store)
    assert (await finish(store, got)).verdict is Verdict.LEASE_LOST


async def test_a_job_given_back_names_no_worker_and_no_fence(bench: Bench) -> None:
    store = bench.store(LONG)
    for give_back in ("fail", "release"):
        (job_id,) = await submit(store, new_job())
        (got,) = await claim(store)
        if give_back == "fail":
            await finish(store, got, FAILURE)
        else:
            await store.attempts.release([(got.id, got.fence)])
        assert await bench.client.hmget(bench.keys.job(job_id), "worker", "fence") == [None, None]
        await store.cancel(job_id)


async def test_a_stale_fence_renews_and_releases_nothing(bench: Bench) -> None:
    store = bench.store(LONG)
    (job_id,) = await submit(store, new_job())
    (first,) = await claim(store)
    await store.attempts.release([(job_id, first.fence)])
    (second,) = await claim(store, worker="w2")
    reply = await store.scripts.attempt_heartbeat("w1", 30_000, 500, b"{}", [job_id, first.fence])
    assert reply == [b"BEAT", b"", b"lost"]
    await store.attempts.release([(job_id, first.fence)])
    assert (await store.job(job_id)).status is Status.RUNNING
    assert (await finish(store, second)).verdict is Verdict.ACCEPTED


async def test_a_released_job_goes_ahead_of_waiting_jobs(store: Store) -> None:
    first, second = await submit(store, new_job(), new_job())
    (got,) = await claim(store)
    await store.attempts.release([(got.id, got.fence)])
    assert [one.id for one in await claim(store, limit=2)] == [first, second]


@pytest.mark.parametrize(("jitter", "expected"), [(0.0, [5, 10, 12.5]), (1.0, [10, 20, 25])])
async def test_retries_wait_longer_each_time_up_to_the_cap(
    bench: Bench, jitter: float, expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workron.store.attempts.random.random", lambda: jitter)
    store = bench.store(Policy(lease_ms=30_000, retry_ms=10_000, retry_max_ms=25_000))
    (job_id,) = await submit(store, new_job(max_attempts=4))
    for wait in expected:
        (got,) = await claim(store)
        await finish(store, got, FAILURE)
        score = await bench.client.zscore(bench.keys.due, job_id)
        seconds, _ = await bench.client.time()
        assert wait - 1 <= score / 1000 - seconds <= wait + 1
        await bench.client.zadd(bench.keys.due, {job_id: 1})
        await bench.client.hset(bench.keys.job(job_id), "run_at", 1)


async def test_a_worker_that_ignores_a_cancel_is_ended_though_it_sends_heartbeats(bench: Bench) -> None:
    store = bench.store(Policy(lease_ms=300, pass_ms=100, stop_ms=50))
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    await store.cancel(job_id)
    beats = set()
    for _ in range(100):
        beats |= set((await store.scripts.attempt_heartbeat("w1", 300, 50, b"{}", [got.id, got.fence]))[2:])
        if (await store.maintenance.reap()).ended:
            break
        await asyncio.sleep(0.02)
    beats |= set((await store.scripts.attempt_heartbeat("w1", 300, 50, b"{}", [got.id, got.fence]))[2:])
    assert beats == {b"cancel", b"lost"}
    assert (await store.job(job_id)).status is Status.CANCELLED


async def test_the_reaper_ends_a_cancel_that_its_worker_ignores_though_the_key_is_there(bench: Bench) -> None:
    store = bench.store(Policy(lease_ms=30_000, pass_ms=100, stop_ms=1))
    (job_id,) = await submit(store, new_job())
    await claim(store)
    await store.cancel(job_id)
    await asyncio.sleep(0.02)
    await bench.client.zadd(bench.keys.leases, {job_id: 1})
    assert (await store.maintenance.reap()).ended == 1


async def test_repeating_a_cancel_does_not_give_the_worker_more_time(bench: Bench) -> None:
    store = bench.store(LONG)
    (job_id,) = await submit(store, new_job())
    await claim(store)
    await store.cancel(job_id)
    asked_at = await bench.client.hget(bench.keys.job(job_id), "cancel_requested_at")
    await asyncio.sleep(0.01)
    assert await store.cancel(job_id) is Cancelled.CANCELLING
    assert await bench.client.hget(bench.keys.job(job_id), "cancel_requested_at") == asked_at


async def test_a_heartbeat_moves_the_deadline_too(bench: Bench) -> None:
    store = bench.store(LONG)
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    await bench.client.zadd(bench.keys.leases, {job_id: 1})
    await store.attempts.heartbeat(WORKER, [(got.id, got.fence)])
    assert await bench.client.zscore(bench.keys.leases, job_id) > 1_700_000_000_000


async def test_a_cancel_is_published_for_the_worker(bench: Bench) -> None:
    store = bench.store(LONG)
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    cancels = store.attempts.cancels()
    first = asyncio.ensure_future(anext(cancels))
    for _ in range(200):
        if await bench.client.pubsub_numsub(bench.keys.cancels) != [(bench.keys.cancels.encode(), 0)]:
            break
        await asyncio.sleep(0.01)
    await store.cancel(job_id)
    assert await asyncio.wait_for(first, 5) == ("w1", job_id, got.fence)
    await cancels.aclose()


async def test_a_cancelled_job_leaves_a_short_list_at_once(bench: Bench) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job())
    await store.cancel(job_id)
    assert await bench.client.llen(bench.keys.pending("default", 5)) == 0


async def test_a_new_run_has_all_its_refunds_and_runs_at_once(bench: Bench) -> None:
    store = bench.store(LONG)
    (job_id,) = await submit(store, new_job(delay_ms=600_000))
    await bench.client.hset(bench.keys.job(job_id), "releases", 10)
    await store.cancel(job_id)
    await store.retry(job_id)
    job = await store.job(job_id)
    assert (job.status, job.run_at_ms) == (Status.PENDING, None)
    (got,) = await claim(store)
    await store.attempts.release([(got.id, got.fence)])
    assert (await store.job(job_id)).attempts == 0


async def test_the_heartbeat_of_an_earlier_attempt_does_not_keep_a_lease(bench: Bench) -> None:
    store = bench.store(LONG)
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    await bench.client.set(bench.keys.heartbeat(job_id), f"w0 {got.fence - 1} 1", px=30_000)
    await bench.client.zadd(bench.keys.leases, {job_id: 1})
    assert (await store.maintenance.reap()).requeued == 1


async def test_workers_not_seen_for_an_hour_leave_the_list(bench: Bench) -> None:
    store = bench.store()
    await bench.client.zadd(bench.keys.workers, {"old": 1})
    await store.maintenance.reap()
    assert await bench.client.zcard(bench.keys.workers) == 0


async def test_the_reaper_marks_a_full_server_and_unmarks_it(bench: Bench) -> None:
    store = bench.store()
    for word, full in (("1", b"1"), ("", b"1"), ("0", None)):
        await store.scripts.maintain_reap(100, 300, 500, 10, word, 0)
        assert await bench.client.hget(bench.keys.meta, "full") == full


async def test_a_lease_of_a_job_that_does_not_run_is_dropped(bench: Bench) -> None:
    store = bench.store()
    await bench.client.zadd(bench.keys.leases, {"gone": 1})
    await store.maintenance.reap()
    assert await bench.client.zcard(bench.keys.leases) == 0


async def test_a_sweep_drops_an_entry_whose_job_is_in_another_state(bench: Bench) -> None:
    store = bench.store(Policy(retention_done_ms=1))
    done, pending = await submit(store, new_job(), new_job())
    (got,) = await claim(store)
    await finish(store, got)
    for queue in (None, "default"):
        await bench.client.zadd(bench.keys.index(queue, "done"), {pending: 1})
    await asyncio.sleep(0.02)
    await store.maintenance.sweep()
    assert [job and job.status for job in await store.jobs([done, pending])] == [None, Status.PENDING]
