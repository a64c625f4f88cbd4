"""Leases: heartbeats keep them, the reaper takes back what silent workers held, stale results change nothing."""

import asyncio
from dataclasses import replace

import pytest

from tests.builders import WORKER, claim, finish, new_job, reap_all, submit
from tests.conftest import WaitUntil
from tests.expiring import SOON, overrun
from tests.servers import USUAL, Bench
from workron import ids
from workron.models import Beat, ClaimRequest, Outcome, Reason, Result, Status, Verdict
from workron.store import Store
from workron.store.policy import Policy


async def test_a_silent_worker_loses_its_job_and_another_one_gets_it(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    await claim(store)
    assert await reap_all(store) == 1
    job = await store.job(job_id)
    assert (job.status, job.reason) == (Status.PENDING, Reason.WORKER_LOST)
    (second,) = await claim(store, worker="w2")
    assert second.attempt == 2


async def test_finishing_after_the_lease_was_reaped_is_refused(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    (first,) = await claim(store)
    await reap_all(store)
    assert (await finish(store, first)).verdict is Verdict.LEASE_LOST
    (second,) = await claim(store, worker="w2")
    assert (await finish(store, first)).verdict is Verdict.LEASE_LOST
    assert (await finish(store, second)).verdict is Verdict.ACCEPTED
    assert (await store.job(job_id)).status is Status.DONE


async def test_finishing_after_the_loss_of_the_last_attempt_is_refused(store: Store) -> None:
    """It would be answered as recorded: its worker would believe that what it brings is kept."""
    (job_id,) = await submit(store, new_job(max_attempts=1))
    (got,) = await claim(store)
    await reap_all(store)
    assert (await finish(store, got)).verdict is Verdict.LEASE_LOST
    assert (await store.job(job_id)).status is Status.FAILED


async def test_a_job_that_loses_every_worker_fails_as_worker_lost(store: Store) -> None:
    (job_id,) = await submit(store, new_job(max_attempts=2))
    for _ in range(2):
        assert await claim(store)
        assert await reap_all(store) == 1
    job = await store.job(job_id)
    assert (job.status, job.reason, job.attempts) == (Status.FAILED, Reason.WORKER_LOST, 2)
    assert job.error is not None
    assert "w1" in job.error


async def test_a_lost_job_goes_ahead_of_waiting_jobs(store: Store) -> None:
    first, second = await submit(store, new_job(), new_job())
    await claim(store)
    await reap_all(store)
    assert [got.id for got in await claim(store, limit=2)] == [first, second]


async def test_heartbeats_keep_the_lease(bench: Bench) -> None:
    store = bench.store(replace(USUAL, lease_ms=2_000))
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    for _ in range(6):
        assert (await store.attempts.heartbeat(WORKER, [(got.id, got.fence)])).attempts == {got.fence: Beat.OK}
        reaped = await store.maintenance.reap()
        assert (reaped.requeued, reaped.ended) == (0, 0)
        await asyncio.sleep(0.5)
    assert (await store.job(job_id)).status is Status.RUNNING


async def test_the_reaper_ignores_a_deadline_whose_heartbeat_is_still_there(bench: Bench) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job())
    await claim(store)
    await bench.client.zadd(bench.keys.leases, {job_id: 1})
    reaped = await store.maintenance.reap()
    assert (reaped.requeued, reaped.alive) == (0, 1)
    assert await bench.client.zscore(bench.keys.leases, job_id) > 1


async def test_a_heartbeat_renews_even_if_its_key_has_gone(bench: Bench) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    await bench.client.delete(bench.keys.heartbeat(job_id))
    assert (await store.attempts.heartbeat(WORKER, [(got.id, got.fence)])).attempts == {got.fence: Beat.OK}
    assert await bench.client.pttl(bench.keys.heartbeat(job_id)) > 0


async def test_a_heartbeat_of_a_lost_lease_is_answered_lost_and_renews_nothing(bench: Bench) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    await reap_all(store)
    assert (await store.attempts.heartbeat(WORKER, [(got.id, got.fence)])).attempts == {got.fence: Beat.LOST}
    assert not await bench.client.exists(bench.keys.heartbeat(job_id))


async def test_a_lost_attempt_is_distinguished_from_the_next_one_of_the_same_job(store: Store) -> None:
    """Answers by job would have renewed the lost attempt, and its command would have run on beside the next one."""
    await submit(store, new_job())
    (first,) = await claim(store)
    await reap_all(store)
    (second,) = await claim(store)
    beats = (await store.attempts.heartbeat(WORKER, [(first.id, first.fence), (second.id, second.fence)])).attempts
    assert beats == {first.fence: Beat.LOST, second.fence: Beat.OK}


async def test_a_worker_that_ignores_the_timeout_is_ended_though_it_sends_heartbeats(
    bench: Bench, wait_until: WaitUntil
) -> None:
    store = bench.store(Policy(lease_ms=300, pass_ms=100, stop_ms=50))
    (job_id,) = await submit(store, new_job(timeout_ms=1, max_attempts=1))
    (got,) = await claim(store)

    async def is_lost() -> bool:
        return (await store.attempts.heartbeat(WORKER, [(got.id, got.fence)])).attempts[got.fence] is Beat.LOST

    async def is_ended() -> bool:
        return await is_lost() and bool((await store.maintenance.reap()).ended)

    await wait_until(is_lost)
    await wait_until(is_ended)
    job = await store.job(job_id)
    assert (job.status, job.reason) == (Status.FAILED, Reason.TIMEOUT)


async def test_a_released_job_goes_back_without_losing_an_attempt(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    await store.attempts.release([(got.id, got.fence)])
    assert (await store.job(job_id)).attempts == 0
    (again,) = await claim(store, worker="w2")
    assert again.attempt == 1
    assert (await finish(store, got)).verdict is Verdict.LEASE_LOST


async def test_releases_are_refunded_ten_times_only(store: Store) -> None:
    await submit(store, new_job(max_attempts=100))
    attempts = []
    for _ in range(13):
        (got,) = await claim(store)
        attempts.append(got.attempt)
        await store.attempts.release([(got.id, got.fence)])
    assert attempts == [1] * 11 + [2, 3]


async def test_an_attempt_whose_guardian_killed_it_goes_back_at_once(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    assert (await finish(store, got, Outcome(Reason.WORKER_LOST))).status is Status.PENDING
    assert (await store.job(job_id)).reason is Reason.WORKER_LOST


async def test_a_repeated_claim_request_gets_the_same_claims(store: Store) -> None:
    await submit(store, *(new_job() for _ in range(4)))
    request = ClaimRequest("w1", ["default"], 2, "boot:7")
    first = await store.attempts.claim(request)
    assert await store.attempts.claim(request) == first or (await store.attempts.claim(request)).claims == first.claims
    assert len(first.claims) == 2


async def test_a_repeated_claim_request_leaves_out_what_has_ended(store: Store) -> None:
    await submit(store, *(new_job() for _ in range(2)))
    request = ClaimRequest("w1", ["default"], 2, "boot:7")
    first = await store.attempts.claim(request)
    await finish(store, first.claims[0])
    assert [got.id for got in (await store.attempts.claim(request)).claims] == [first.claims[1].id]


async def test_the_leases_of_a_repeated_claim_request_ended_before_its_worker_thought(bench: Bench) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job())
    request = ClaimRequest("w1", ["default"], 1, "boot:7")
    await store.attempts.claim(request)
    await bench.client.pexpire(bench.keys.heartbeat(job_id), 1)
    await bench.client.zadd(bench.keys.leases, {job_id: 1})
    (got,) = (await store.attempts.claim(request)).claims
    assert got.id == job_id
    lease = await bench.client.zscore(bench.keys.leases, job_id)
    now_s, now_us = await bench.client.time()
    assert lease > now_s * 1000 + now_us / 1000
    assert await bench.client.pttl(bench.keys.heartbeat(job_id)) > 1


async def test_a_repeated_claim_request_does_not_bring_what_was_cancelled_meanwhile(store: Store) -> None:
    first, second = await submit(store, *(new_job() for _ in range(2)))
    request = ClaimRequest("w1", ["default"], 2, "boot:7")
    await store.attempts.claim(request)
    await store.cancel(first)
    assert [got.id for got in (await store.attempts.claim(request)).claims] == [second]


async def test_a_repeated_claim_request_does_not_bring_what_has_missed_its_deadline_meanwhile(store: Store) -> None:
    late, other = await submit(store, new_job(deadline=SOON), new_job())
    request = ClaimRequest("w1", ["default"], 2, "boot:7")
    first, _ = (await store.attempts.claim(request)).claims
    await overrun(store, late, first.fence)
    assert [got.id for got in (await store.attempts.claim(request)).claims] == [other]


async def test_an_overtaken_claim_request_claims_nothing(store: Store) -> None:
    await submit(store, *(new_job() for _ in range(2)))
    await store.attempts.claim(ClaimRequest("w1", ["default"], 1, "boot:8"))
    late = await store.attempts.claim(ClaimRequest("w1", ["default"], 1, "boot:7"))
    assert (late.claims, late.more) == ((), True)
    (queue,) = await store.queues()
    assert queue.counts[Status.PENDING] == 1


async def test_results_and_claims_travel_in_one_call(store: Store) -> None:
    ids = await submit(store, *(new_job() for _ in range(4)))
    first = await store.attempts.claim(ClaimRequest("w1", ["default"], 2, "boot:1"))
    results = [Result(got.id, got.fence, Outcome(None, exit_code=0)) for got in first.claims]
    request = ClaimRequest("w1", ["default"], 2, "boot:2")
    exchanged = await store.attempts.finish(results, request)
    assert [got.id for got in exchanged.claimed.claims] == ids[2:]
    again = await store.attempts.finish(results, request)
    assert [one.verdict for one in again.finished] == [Verdict.RECORDED] * 2
    assert again.claimed.claims == exchanged.claimed.claims


async def test_an_empty_queue_tells_when_the_next_job_is_due(store: Store) -> None:
    await submit(store, new_job(delay_ms=5_000))
    claimed = await store.attempts.claim(ClaimRequest("w1", ["default"], 1, "boot:1"))
    assert not claimed.more
    assert claimed.next_due_in_ms is not None
    assert 4_000 < claimed.next_due_in_ms <= 5_000


async def test_a_fence_grows_even_if_redis_forgets_the_last_one(bench: Bench) -> None:
    store = bench.store()
    await submit(store, new_job(), new_job())
    (first,) = await claim(store)
    await bench.client.hset(bench.keys.meta, "fence", 5)
    (second,) = await claim(store)
    assert second.fence > first.fence


async def heartbeat_of(bench: Bench, job_id: str, fence: int | str, ttl_ms: int) -> None:
    """Have the lease be over, and a heartbeat stand there that says so and lives so long."""
    now_s, _ = await bench.client.time()
    await bench.client.set(bench.keys.heartbeat(job_id), f"w1 {fence} {now_s}000 30000", px=ttl_ms)
    await bench.client.zadd(bench.keys.leases, {job_id: 1})


async def rest_of_lease_ms(bench: Bench, job_id: str) -> float:
    now_s, now_us = await bench.client.time()
    return float(await bench.client.zscore(bench.keys.leases, job_id)) - now_s * 1000 - now_us / 1000


async def test_a_heartbeat_of_another_attempt_keeps_no_lease(store: Store, bench: Bench) -> None:
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    await heartbeat_of(bench, job_id, int(got.fence) + 1, 30_000)
    assert (await store.maintenance.reap()).requeued == 1


@pytest.mark.parametrize(("ttl_ms", "rest_ms"), [(20_000, 20_000), (86_400_000, 30_000)])
async def test_a_reaper_leaves_a_lease_no_longer_than_its_heartbeat_lives_nor_than_it_was_given(
    store: Store, bench: Bench, ttl_ms: int, rest_ms: int
) -> None:
    """A heartbeat lives longer than it was given where the server's clock was ahead."""
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    await heartbeat_of(bench, job_id, got.fence, ttl_ms)
    assert (await store.maintenance.reap()).alive == 1
    assert rest_ms - 10_000 < await rest_of_lease_ms(bench, job_id) <= rest_ms
    assert rest_ms - 10_000 < await bench.client.pttl(bench.keys.heartbeat(job_id)) <= rest_ms


@pytest.mark.parametrize("status", ["pending", "done", "gone"])
async def test_a_lease_of_a_job_that_does_not_run_ends_nothing_and_goes(
    store: Store, bench: Bench, status: str
) -> None:
    """A job that is done would end once more, or run again."""
    (job_id,) = await submit(store, new_job())
    if status == "done":
        await finish(store, (await claim(store))[0])
    before = await store.job(job_id)
    await bench.client.zadd(bench.keys.leases, {ids.new_id() if status == "gone" else job_id: 1})
    reaped = await store.maintenance.reap()
    assert (reaped.requeued, reaped.ended, await store.job(job_id)) == (0, 0, before)
    assert not await bench.client.exists(bench.keys.leases, bench.keys.quarantine)


async def test_a_job_whose_worker_is_lost_before_its_timeout_has_not_timed_out(store: Store) -> None:
    (job_id,) = await submit(store, new_job(timeout_ms=600_000))
    await claim(store)
    await reap_all(store)
    assert (await store.job(job_id)).reason is Reason.WORKER_LOST


@pytest.mark.damaged
async def test_a_damaged_heartbeat_of_a_lease_that_is_too_long_spares_the_other_one(bench: Bench) -> None:
    store = bench.store()
    broken, good = await submit(store, new_job(), new_job())
    await claim(store, limit=2)
    now_s, _ = await bench.client.time()
    await bench.client.zadd(bench.keys.leases, dict.fromkeys((broken, good), (now_s + 86_400) * 1000))
    await bench.client.delete(bench.keys.heartbeat(broken))
    await bench.client.rpush(bench.keys.heartbeat(broken), "x")
    await store.maintenance.reap()
    assert await rest_of_lease_ms(bench, good) <= 30_000
    assert await bench.client.smembers(bench.keys.quarantine) == {broken.encode()}
