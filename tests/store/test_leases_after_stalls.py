"""Leases after a time in which nobody looked, and after the server's clock was wrong."""

from typing import Final

import pytest

from reaper.reaper import Reaper
from tests.builders import WORKER, claim, jobs, new_job, reap_all, submit
from tests.servers import QUICK, Bench
from workron.models import Beat, Status
from workron.store import Store
from workron.store.policy import Policy

LEASE_MS: Final = 30_000
USUAL: Final = Policy(lease_ms=LEASE_MS, pass_ms=1000)
DAY_MS: Final = 86_400_000


async def now_ms(bench: Bench) -> int:
    seconds, micros = await bench.client.time()
    return int(seconds) * 1000 + int(micros) // 1000


async def lost_claims(bench: Bench, store: Store, ago_ms: int, size: int = 1) -> list[str]:
    """Start jobs whose worker has died; their leases ended so long ago."""
    made = jobs(size)
    await store.submit(made)
    started: list[str] = []
    while len(started) < size:
        started += [one.id for one in await claim(store, limit=150)]
    await bench.client.delete(*(bench.keys.heartbeat(one) for one in started))
    end_ms = await now_ms(bench) - ago_ms
    await bench.client.zadd(bench.keys.leases, dict.fromkeys(started, end_ms))
    return started


async def nobody_looked(bench: Bench, length_ms: int) -> None:
    """Have the last pass be so long ago, and let the next one find that."""
    await bench.client.hset(bench.keys.meta, "last_pass", await now_ms(bench) - length_ms)


async def lease_of(bench: Bench, job_id: str) -> float:
    score = await bench.client.zscore(bench.keys.leases, job_id)
    assert score is not None
    return float(score)


async def pause_of(bench: Bench) -> tuple[int, int]:
    since, until = await bench.client.hmget(bench.keys.meta, "stalled_at", "resumed_at")
    return int(since), int(until)


async def test_nothing_is_reaped_for_as_long_as_all_were_away(bench: Bench) -> None:
    store = bench.store(USUAL)
    [job_id] = await lost_claims(bench, store, 4_000)
    before = await lease_of(bench, job_id)
    await nobody_looked(bench, 10_000)
    reaped = await store.maintenance.reap()
    assert (reaped.put_off, reaped.requeued) == (1, 0)
    since, until = await pause_of(bench)
    assert await lease_of(bench, job_id) == before + (until - since) + 0.5


async def test_a_lease_is_put_off_by_one_lease_at_most(bench: Bench) -> None:
    store = bench.store(USUAL)
    [job_id] = await lost_claims(bench, store, 0)
    await nobody_looked(bench, DAY_MS)
    assert (await store.maintenance.reap()).put_off == 1
    _, until = await pause_of(bench)
    assert await lease_of(bench, job_id) == until + LEASE_MS + 0.5


async def test_a_lease_that_had_ended_before_the_stall_is_not_put_off(bench: Bench) -> None:
    store = bench.store(USUAL)
    await lost_claims(bench, store, 20_000)
    await nobody_looked(bench, 10_000)
    reaped = await store.maintenance.reap()
    assert (reaped.put_off, reaped.requeued) == (0, 1)


async def test_a_stall_in_each_lease_put_reaping_off_for_ever(bench: Bench) -> None:
    store = bench.store(USUAL)
    [job_id] = await lost_claims(bench, store, 1_000)
    await nobody_looked(bench, 3_400)
    assert (await store.maintenance.reap()).put_off == 1
    await bench.client.zadd(bench.keys.leases, {job_id: await now_ms(bench) - 1_000 + 0.5})  # it ends in another stall
    await nobody_looked(bench, 3_400)
    reaped = await store.maintenance.reap()
    assert (reaped.put_off, reaped.requeued) == (0, 1)
    assert (await store.job(job_id)).status is Status.PENDING


async def test_a_worker_with_a_new_heartbeat_is_put_off_again(bench: Bench) -> None:
    store = bench.store(USUAL)
    [job_id] = await lost_claims(bench, store, 1_000)
    await nobody_looked(bench, 3_400)
    assert (await store.maintenance.reap()).put_off == 1
    fence = int(await bench.client.hget(bench.keys.job(job_id), "fence"))
    assert (await store.attempts.heartbeat(WORKER, [(job_id, fence)])).attempts[fence] is Beat.OK
    assert await lease_of(bench, job_id) % 1 == 0
    await bench.client.delete(bench.keys.heartbeat(job_id))
    await bench.client.zadd(bench.keys.leases, {job_id: await now_ms(bench) - 1_000})
    await nobody_looked(bench, 3_400)
    assert (await store.maintenance.reap()).put_off == 1


async def test_a_look_takes_nothing_for_lost_that_was_put_off(bench: Bench) -> None:
    store = bench.store(USUAL)
    [job_id] = await lost_claims(bench, store, 4_000)
    await nobody_looked(bench, 10_000)
    await store.maintenance.reap()
    put_off = await lease_of(bench, job_id)
    assert await store.spot_check.look() == []
    assert await lease_of(bench, job_id) == put_off


async def test_leases_that_ran_during_the_stall_are_put_off_with_the_same_pass(bench: Bench) -> None:
    store = bench.store(USUAL)
    await lost_claims(bench, store, 1_000, size=250)
    await nobody_looked(bench, 600_000)
    reaped = await Reaper(store, every_s=1).reap()
    assert (reaped.put_off, reaped.requeued) == (250, 0)


async def test_a_stall_that_lies_ahead_is_not_believed(bench: Bench) -> None:
    store = bench.store(USUAL)
    await lost_claims(bench, store, 1_000)
    now = await now_ms(bench)
    await bench.client.hset(
        bench.keys.meta, mapping={"stalled_at": now, "resumed_at": now + DAY_MS, "last_pass": now + DAY_MS}
    )
    reaped = await store.maintenance.reap()
    assert (reaped.put_off, reaped.requeued) == (0, 1)
    assert int(await bench.client.hget(bench.keys.meta, "last_pass")) < now + DAY_MS


# --- the server's clock was ahead -------------------------------------------------------------------------------------


async def set_ahead(bench: Bench, *job_ids: str, by_ms: int = DAY_MS) -> None:
    """Have running jobs be leased as they are by a claim while the server's clock is ahead."""
    for job_id in job_ids:
        await bench.client.zincrby(bench.keys.leases, by_ms, job_id)
        left_ms = await bench.client.pttl(bench.keys.heartbeat(job_id))
        await bench.client.pexpire(bench.keys.heartbeat(job_id), left_ms + by_ms)


async def test_a_lease_that_ends_in_a_day_is_not_believed(bench: Bench) -> None:
    store = bench.store()
    [job_id] = await submit(store, new_job())
    await claim(store)
    await set_ahead(bench, job_id)
    assert await reap_all(store) == 1
    assert (await store.job(job_id)).status is Status.PENDING


async def test_a_heartbeat_that_lasts_for_a_day_keeps_no_expired_lease(bench: Bench) -> None:
    store = bench.store()
    [job_id] = await submit(store, new_job())
    await claim(store)
    await bench.client.pexpire(bench.keys.heartbeat(job_id), DAY_MS)
    assert await reap_all(store) == 1


async def test_a_worker_that_lives_goes_on_when_its_lease_was_cut(bench: Bench) -> None:
    store = bench.store(USUAL)
    [job_id] = await submit(store, new_job())
    [held] = await claim(store)
    await set_ahead(bench, job_id)
    await store.maintenance.reap()
    assert await lease_of(bench, job_id) <= await now_ms(bench) + LEASE_MS
    assert 0 < await bench.client.pttl(bench.keys.heartbeat(job_id)) <= LEASE_MS
    assert (await store.attempts.heartbeat(WORKER, [(job_id, held.fence)])).attempts[held.fence] is Beat.OK


async def test_a_lease_that_is_longer_than_the_reaper_s_own_is_not_cut(bench: Bench) -> None:
    patient, reaper = bench.store(Policy(lease_ms=3_600_000)), bench.store(QUICK)
    [job_id] = await submit(patient, new_job())
    [held] = await claim(patient)
    for _ in range(2):
        before = await lease_of(bench, job_id), await bench.client.pexpiretime(bench.keys.heartbeat(job_id))
        for _ in range(3):
            await reaper.maintenance.reap()
        assert (await lease_of(bench, job_id), await bench.client.pexpiretime(bench.keys.heartbeat(job_id))) == before
        await patient.attempts.heartbeat(WORKER, [(job_id, held.fence)])
    await set_ahead(bench, job_id)
    await reaper.maintenance.reap()
    assert await lease_of(bench, job_id) <= await now_ms(bench) + 3_600_000


async def test_a_lease_that_is_too_long_is_found_behind_many_that_may_be(bench: Bench) -> None:
    patient, reaper = bench.store(Policy(lease_ms=DAY_MS)), bench.store(USUAL)
    await patient.submit(jobs(250))
    while await claim(patient, limit=150):
        pass
    [job_id] = await submit(reaper, new_job())
    await claim(reaper)
    await set_ahead(bench, job_id, by_ms=3_600_000)
    for _ in range(3):  # 100 of them each
        await reaper.maintenance.reap()
    assert await lease_of(bench, job_id) <= await now_ms(bench) + LEASE_MS
    assert await bench.client.hget(bench.keys.meta, "far") == b"0"


async def test_all_leases_that_are_too_long_are_cut_by_one_pass(bench: Bench) -> None:
    store = bench.store(USUAL)
    await store.submit(jobs(250))
    started: list[str] = []
    while got := await claim(store, limit=150):
        started += [one.id for one in got]
    await set_ahead(bench, *started)
    await Reaper(store, every_s=1).reap()
    [(_, last)] = await bench.client.zrange(bench.keys.leases, -1, -1, withscores=True)
    assert last <= await now_ms(bench) + LEASE_MS


@pytest.mark.parametrize("field", ["started_at", "cancel_requested_at", "expired_at"])
async def test_a_time_that_lies_ahead_counts_as_now_for_a_heartbeat(bench: Bench, field: str) -> None:
    """Else a command that has to stop would have a day more."""
    store = bench.store(USUAL)
    [job_id] = await submit(store, new_job(timeout_ms=60_000))
    [held] = await claim(store)
    before = await now_ms(bench)
    await bench.client.hset(bench.keys.job(job_id), field, before + DAY_MS)
    beats = await store.attempts.heartbeat(WORKER, [(job_id, held.fence)])
    assert beats.attempts[held.fence] is (Beat.OK if field == "started_at" else Beat.CANCEL)
    assert before <= int(await bench.client.hget(bench.keys.job(job_id), field)) <= await now_ms(bench)
    await bench.client.hdel(bench.keys.job(job_id), "expired_at")


async def test_a_lease_went_with_its_heartbeat_that_ended_as_the_clock_leaped(bench: Bench) -> None:
    """Set forward for a moment, the server has dropped the key; its worker lives, and beats in time."""
    store = bench.store(USUAL)
    [job_id] = await submit(store, new_job())
    [held] = await claim(store)
    before = await lease_of(bench, job_id)
    await bench.client.delete(bench.keys.heartbeat(job_id))
    assert await store.spot_check.look() == []
    assert (await store.maintenance.reap()).requeued == 0
    assert await lease_of(bench, job_id) == before
    assert (await store.attempts.heartbeat(WORKER, [(job_id, held.fence)])).attempts[held.fence] is Beat.OK


async def test_a_lease_that_was_put_off_while_the_clock_was_ahead_stays_put_off(bench: Bench) -> None:
    store = bench.store(USUAL)
    [job_id] = await lost_claims(bench, store, 1_000)
    await bench.client.zadd(bench.keys.leases, {job_id: await now_ms(bench) + DAY_MS + 0.5})
    await store.maintenance.reap()
    lease = await lease_of(bench, job_id)
    assert lease % 1 == 0.5
    assert lease <= await now_ms(bench) + LEASE_MS + 0.5
    assert await store.spot_check.look() == []
