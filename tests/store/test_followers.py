"""Many arrays that follow one, task by task: bounded work in each call, and no task is lost."""

import asyncio
import time
from typing import Any

import pytest

from tests.array_jobs import BAD, array_job, array_of, run_all, tasks_of
from tests.builders import SUCCESS, claim, finish, finish_all, jobs, submit
from tests.servers import Bench
from workron import ids
from workron.models import Claim, Dependency, Moment, NewArray, NewJob, Reason, Result, Status, When
from workron.store import Store
from workron.store.encode import MAX_JOBS
from workron.store.policy import Policy

VISITS = 40
"""Most visits of one follower for one place, in a call."""


def followers(job: NewJob, number: int, when: When = When.DONE, **fields: Any) -> list[NewJob]:
    assert job.array is not None
    edge = Dependency(job.id, when, matching=True)
    return [array_job(job.array.size, depends_on=[edge], queue="behind", **fields) for _ in range(number)]


@pytest.mark.large
async def test_followers_of_an_array_do_not_break_the_script_that_ends_its_tasks(store: Store, bench: Bench) -> None:
    job = array_job(150)
    await submit(store, job)
    for one in followers(job, 28):
        await submit(store, one)
    claims = await claim(store, limit=150)
    results = [Result(one.id, one.fence, SUCCESS) for one in claims]
    exchanged = await store.attempts.finish(results, worker="w1")  # "too many results to unpack"
    assert exchanged.propagating
    assert await bench.client.llen(bench.keys.pending("behind", 5)) <= VISITS
    assert await store.maintenance.propagate() >= 150 * 28 / VISITS - 1
    assert await bench.client.llen(bench.keys.pending("behind", 5)) == 150 * 28


@pytest.mark.large
async def test_a_cancel_of_an_array_made_the_tasks_of_all_that_follow_it(store: Store, bench: Bench) -> None:
    job = array_job(60)
    await submit(store, job)
    behind = followers(job, 30)
    await submit(store, *behind)
    await store.cancel(job.id)
    await store.maintenance.propagate()
    await store.maintenance.tidy()
    assert (await store.job(job.id)).status is Status.CANCELLED
    assert {(await store.job(one.id)).status for one in behind} == {Status.FAILED}
    [counts] = [queue.counts for queue in await store.queues() if queue.name == "behind"]
    assert counts[Status.SKIPPED] == 60 * 30
    assert not await bench.client.exists(bench.keys.propagate, bench.keys.arrays)


async def test_a_cascade_ends_all_arrays_that_follow_however_many(store: Store) -> None:
    job = array_job(1)
    behind = followers(job, 130, When.FINISHED)
    await submit(store, job, *behind)
    await store.cancel(job.id, cascade=True)
    await store.maintenance.propagate()
    await store.maintenance.tidy()
    assert {(await store.job(one.id)).status for one in [job, *behind]} == {Status.CANCELLED}


async def test_an_array_that_follows_one_of_an_open_submission_learns_of_its_cancel(store: Store) -> None:
    many = jobs(450, queue="other")
    many[-1].array = NewArray(ids.new_id(), 3)
    await store.submit(many)
    [behind] = followers(many[-1], 1)
    await submit(store, behind)
    await store.cancel(many[-1].id)
    await store.maintenance.propagate()
    await store.maintenance.tidy()
    assert (await store.job(behind.id)).status is Status.FAILED
    assert (await array_of(store, behind)).counts[Status.SKIPPED] == 3


async def test_an_array_that_starts_when_nothing_has_ended_visited_all_that_it_follows(bench: Bench) -> None:
    store = bench.store()
    job = array_job(20)
    await submit(store, job)
    [early] = followers(job, 1)
    await store.submit([early])
    assert await bench.client.hget(bench.keys.array(early.id), "walk") is None
    await finish(store, (await claim(store))[0])
    assert await bench.client.llen(bench.keys.pending("behind", 5)) == 1


@pytest.mark.damaged
@pytest.mark.parametrize("part", ["followers", "ended"])
async def test_a_damaged_key_of_an_array_spares_the_ends_of_its_tasks(bench: Bench, part: str) -> None:
    store = bench.store()
    job = array_job(2)
    await submit(store, job)
    await submit(store, *followers(job, 1))
    await bench.client.delete(f"{bench.keys.array(job.id)}:{part}")
    await bench.client.set(f"{bench.keys.array(job.id)}:{part}", "what?")
    claims = await claim(store, limit=2)
    assert [one.status for one in await finish_all(store, claims, [SUCCESS] * 2)] == [Status.DONE] * 2
    assert (await store.job(job.id)).status is Status.DONE


@pytest.mark.damaged
async def test_many_damaged_arrays_kept_all_others_waiting(bench: Bench) -> None:
    store = bench.store()
    for one in ids.new_ids(101):
        await bench.client.hset(bench.keys.job(one), mapping={"status": "blocked", "hooks": "array", "array_size": "2"})
        await bench.client.set(bench.keys.array(one), "what?")
        await bench.client.zadd(bench.keys.arrays, {one: 0})
    job = array_job(3)
    await submit(store, job)
    await bench.client.hset(bench.keys.array(job.id), mapping={"walk": "retry", "walk_at": "0"})
    await bench.client.zadd(bench.keys.arrays, {job.id: time.time() * 1000})
    await store.maintenance.tidy()
    assert await bench.client.hget(bench.keys.array(job.id), "walk") is None
    assert not await bench.client.exists(bench.keys.arrays)


async def test_a_walk_over_followers_that_was_forgotten_goes_on(bench: Bench) -> None:
    store = bench.store()
    job = array_job(3)
    await submit(store, job)
    await submit(store, *followers(job, 30))
    claims = await claim(store, limit=3)
    await store.attempts.finish([Result(one.id, one.fence, SUCCESS) for one in claims], worker="w1")
    assert await bench.client.delete(bench.keys.propagate) == 1
    await store.spot_check.look()
    await store.maintenance.propagate()
    await store.maintenance.tidy()
    assert len(await claim(store, queues=["behind"], limit=150)) == 90


async def test_the_doctor_took_arrays_with_pending_notifications_for_stuck_ones(store: Store) -> None:
    job = array_job(1)
    await submit(store, job, *followers(job, VISITS + 20))
    [only] = await claim(store)
    exchanged = await store.attempts.finish([Result(only.id, only.fence, SUCCESS)], worker="w1")
    assert exchanged.propagating
    assert (await store.job(job.id)).status is Status.DONE
    assert (await store.doctor.examine()).faults == ()
    assert await store.spot_check.look() == []


async def comes(bench: Bench, store: Store, kind: str, job: NewJob) -> None:
    """The deadline of an array, or what it `expires` by, has come."""
    await bench.client.hset(bench.keys.job(job.id), f"{kind}_at", "1000")
    await bench.client.zadd(bench.keys.due, {f"{kind} {job.id}": 1000})
    await store.maintenance.promote()
    await store.maintenance.tidy()


async def test_a_task_that_was_skipped_did_not_run_after_the_deadline_of_its_array(bench: Bench) -> None:
    store = bench.store()
    job = array_job(2)
    await submit(store, job)
    [behind] = followers(job, 1, deadline=Moment(after_ms=600_000))
    await submit(store, behind)
    [first] = await claim(store)
    await finish(store, first, BAD)
    assert (await store.job(tasks_of(behind)[0])).status is Status.SKIPPED
    await comes(bench, store, "deadline", behind)
    assert (await store.job(behind.id)).reason is Reason.EXPIRED
    await store.retry(first.id)
    assert len(await run_all(store)) == 2
    assert await claim(store, queues=["behind"]) == []
    assert (await store.job(behind.id)).status is Status.FAILED


async def test_a_retry_of_an_array_skipped_what_followed_tasks_that_were_done_and_swept(bench: Bench) -> None:
    store = bench.store(Policy(retention_done_ms=0))
    job = array_job(2)
    await submit(store, job)
    [behind] = followers(job, 1)
    await submit(store, behind)
    await store.cancel_tasks(behind.id, [1])  # it is never made
    assert len(await run_all(store)) == 2
    await finish(store, (await claim(store, queues=["behind"]))[0], BAD)
    assert (await store.job(behind.id)).status is Status.FAILED
    await asyncio.sleep(0.01)
    await store.maintenance.sweep()
    assert (await store.job(job.id)).status is Status.DONE
    await store.retry(behind.id)
    claims = await claim(store, queues=["behind"], limit=5)
    assert [one.id for one in claims] == tasks_of(behind)
    await finish_all(store, claims, [SUCCESS] * 2)
    assert (await store.job(behind.id)).status is Status.DONE
    await asyncio.sleep(0.01)
    for _ in range(3):  # the one that follows, then the other
        await store.maintenance.sweep()
    assert await store.jobs([job.id, behind.id]) == [None, None]


async def test_an_array_that_did_not_start_in_time_in_a_further_run_went_on(bench: Bench) -> None:
    store = bench.store()
    job = array_job(1, expires=Moment(after_ms=600_000))
    await submit(store, job)
    await finish(store, (await claim(store))[0], BAD)
    assert (await store.job(job.id)).status is Status.FAILED
    await store.retry(job.id)
    await comes(bench, store, "expires", job)
    assert (await store.job(job.id)).error == "expired: not started in time"


async def cancelled_before_it_was_made(store: Store) -> tuple[NewJob, Claim]:
    """Return an array that follows one that is done, and is being cancelled: one task runs, one was not made."""
    job = array_job(2)
    [behind] = followers(job, 1)
    await submit(store, job, behind)
    await finish(store, (await claim(store))[0])
    await store.maintenance.propagate()
    [runs] = await claim(store, queues=["behind"])
    await store.cancel_tasks(behind.id, [1])
    await run_all(store)
    await store.cancel(behind.id)
    await store.maintenance.tidy()
    return behind, runs


async def test_a_retry_of_one_task_of_a_cancelled_array_that_follows_made_nothing_and_the_array_never_ended(
    store: Store,
) -> None:
    behind, runs = await cancelled_before_it_was_made(store)
    await finish(store, runs)
    assert (await store.job(behind.id)).status is Status.CANCELLED
    assert await store.retry_tasks(behind.id, [1]) == {"retried": 1}
    [again] = await claim(store, queues=["behind"])
    assert again.id == tasks_of(behind)[1]
    await finish(store, again)
    assert (await store.job(behind.id)).finished_at_ms is not None


async def test_a_retry_of_one_task_while_its_array_is_cancelled_kept_the_array_from_ending(store: Store) -> None:
    behind, runs = await cancelled_before_it_was_made(store)
    assert await store.retry_tasks(behind.id, [1]) == {"not_ended": 1}
    await finish(store, runs)
    assert (await store.job(behind.id)).status is Status.CANCELLED


async def test_tasks_that_a_retry_had_passed_were_retried_again(store: Store, bench: Bench) -> None:
    """What the array follows had told it something meanwhile: the retry began at its first task again."""
    job = array_job(3)
    (behind,) = followers(job, 1, When.FINISHED)
    await submit(store, job, behind)
    await run_all(store)
    await store.maintenance.propagate()
    failed = await claim(store, queues=["behind"], limit=3)
    await finish_all(store, failed, [BAD] * 3)
    await store.retry(behind.id, (await store.job(behind.id)).run)
    for one in await claim(store, queues=["behind"], limit=2):
        await finish(store, one, BAD)
    await bench.client.hset(bench.keys.array(behind.id), mapping={"walk": "retry", "walk_at": "2"})
    await bench.client.rpush(bench.keys.array(job.id) + ":ended", "*")
    await bench.client.rpush(bench.keys.propagate, f"follow:{job.id}")
    await store.maintenance.propagate()
    await store.maintenance.tidy()
    states = [(await store.job(task)).status for task in tasks_of(behind)]
    assert states == [Status.FAILED, Status.FAILED, Status.PENDING]


@pytest.mark.damaged
async def test_a_walk_that_has_lost_its_position_never_ended(bench: Bench) -> None:
    store = bench.store()
    job = array_job(3)
    await submit(store, job)
    await bench.client.hset(bench.keys.array(job.id), "walk", "cancel")
    await store.maintenance.tidy()
    await store.spot_check.look()
    await store.maintenance.tidy()
    assert (await store.job(job.id)).status is Status.CANCELLED
    assert not await bench.client.exists(bench.keys.quarantine)


@pytest.mark.damaged
async def test_the_tasks_of_a_follower_that_has_lost_its_condition_were_skipped(bench: Bench) -> None:
    store = bench.store()
    job = array_job(2)
    (behind,) = followers(job, 1)
    await submit(store, job, behind)
    await bench.client.hdel(bench.keys.array(behind.id), "follows_when")
    await run_all(store)
    await store.maintenance.propagate()
    assert len(await claim(store, queues=["behind"], limit=2)) == 2


@pytest.mark.damaged
async def test_a_staged_follower_that_has_lost_its_condition_kept_its_chunk_out(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = bench.store()
    job = array_job(2)
    (behind,) = followers(job, 1)
    with monkeypatch.context() as patch:
        patch.setattr(store.submitter, "admit_quietly", lambda batch: asyncio.sleep(0))
        await submit(store, job, behind, *jobs(MAX_JOBS, queue="others"))
    await bench.client.hdel(bench.keys.job(behind.id), "array_follows_when")
    await store.maintenance.tidy()
    await run_all(store)
    await store.maintenance.propagate()
    assert len(await claim(store, queues=["behind"], limit=2)) == 2
