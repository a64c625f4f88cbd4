"""Slots of concurrency keys are freed however a job ends, and its line is left by whatever takes it out of it."""

import asyncio
from dataclasses import replace

import pytest

from tests.array_jobs import BAD, array_job, tasks_of
from tests.builders import after, claim, finish, jobs, new_job, reap_all, submit
from tests.expiring import SOON, ended
from tests.servers import Bench
from workron.models import ClaimRequest, Concurrency, Status
from workron.store import Store
from workron.store.policy import Policy

ONE = Concurrency("customer-7", 1)
TWO = Concurrency("customer-7", 2)
QUEUES = ["default", "other"]


async def started(store: Store, *, limit: int = 10) -> list[str]:
    return [one.id for one in await claim(store, limit=limit, queues=QUEUES)]


async def test_cancelling_a_held_a_released_and_a_running_job_each_let_the_next_one_go_on(store: Store) -> None:
    many = jobs(5, concurrency=ONE)
    await submit(store, *many)
    released, held, second, third, last = (job.id for job in many)
    await store.cancel(held)
    await store.cancel(released)
    [running] = await claim(store, limit=5)
    assert running.id == second
    await store.cancel(running.id)
    assert await started(store) == []  # it runs until its command is stopped
    await finish(store, running, BAD)
    assert await started(store) == [third]
    assert (await store.job(last)).status is Status.PENDING


async def test_a_failed_job_frees_its_slot_while_it_waits_for_its_next_attempt(store: Store) -> None:
    first, second = jobs(2, concurrency=ONE)
    await submit(store, first, second)
    await finish(store, (await claim(store))[0], BAD)
    assert await started(store) == [second.id]
    while (await store.job(first.id)).status is Status.SCHEDULED:
        await store.maintenance.promote()
        await asyncio.sleep(0.01)
    assert await started(store) == []


async def test_a_retry_by_an_operator_waits_for_a_slot_too(store: Store) -> None:
    job = new_job(concurrency=ONE, max_attempts=1)
    await submit(store, job)
    await finish(store, (await claim(store))[0], BAD)
    await submit(store, new_job(concurrency=ONE))
    [running] = await claim(store)
    await store.retry(job.id)
    assert await started(store) == []
    await finish(store, running)
    assert await started(store) == [job.id]


async def test_a_job_given_back_is_the_next_one_of_its_key(store: Store) -> None:
    first, second = jobs(2, concurrency=ONE)
    await submit(store, first, second)
    for _ in range(4):
        [running] = await claim(store, limit=2)
        assert running.id == first.id
        await store.attempts.release([(running.id, running.fence)])


async def test_a_lost_worker_leaves_its_slot(store: Store) -> None:
    many = jobs(2, concurrency=ONE, max_attempts=1)
    await submit(store, *many)
    await claim(store)
    assert await reap_all(store) == 1
    assert await started(store) == [many[1].id]


async def test_a_claim_that_is_taken_back_leaves_its_slot(store: Store) -> None:
    await submit(store, *jobs(2, concurrency=ONE))
    request = ClaimRequest("w2", ["default"], 5, "boot:1", inbox="inbox")
    assert len((await store.attempts.claim(request)).claims) == 1
    await store.attempts.claim(replace(request, limit=0))
    assert len(await started(store)) == 1


async def test_a_claim_whose_reply_was_lost_is_answered_again_and_takes_no_second_slot(store: Store) -> None:
    await submit(store, *jobs(3, concurrency=ONE))
    request = ClaimRequest("w2", ["default"], 5, "boot:1")
    first = await store.attempts.claim(request)
    again = await store.attempts.claim(request)
    assert [one.id for one in again.claims] == [one.id for one in first.claims]
    assert len(first.claims) == 1


async def test_a_submission_whose_reply_was_lost_waits_once(store: Store) -> None:
    job = new_job(concurrency=ONE)
    await submit(store, job)
    await submit(store, job)
    assert await started(store) == [job.id]


async def test_a_held_job_that_expires_leaves_its_line(store: Store) -> None:
    first, held, last = new_job(concurrency=ONE), new_job(concurrency=ONE, expires=SOON), new_job(concurrency=ONE)
    await submit(store, first, held, last)
    [running] = await claim(store)
    assert (await ended(store, held.id)).status is Status.CANCELLED
    await finish(store, running)
    assert await started(store) == [last.id]


async def test_tasks_of_an_array_keep_to_the_key_of_their_job(store: Store) -> None:
    job = array_job(5, concurrency=TWO)
    await submit(store, job, new_job(concurrency=TWO, queue="other"))
    claims = await claim(store, queues=QUEUES, limit=10)
    assert [one.id for one in claims] == tasks_of(job)[:2]
    assert await started(store) == []
    assert (await store.job(claims[0].id)).concurrency == TWO
    for _ in range(6):
        for one in claims:
            await finish(store, one)
        claims = await claim(store, queues=QUEUES, limit=10)
        assert len(claims) <= 2
    assert (await store.job(job.id)).status is Status.DONE


async def test_a_task_that_runs_again_after_all_has_ended_has_its_limit(store: Store) -> None:
    job = array_job(3, concurrency=ONE)
    await submit(store, job)
    while claims := await claim(store, limit=5):
        await finish(store, claims[0], BAD)
    await store.retry_tasks(job.id, [0, 2])
    assert await started(store) == [tasks_of(job)[0]]


async def test_jobs_of_a_workflow_hold_nothing_while_they_are_blocked(store: Store) -> None:
    first = new_job(concurrency=ONE)
    children = jobs(2, concurrency=ONE, depends_on=after(first.id))
    await submit(store, first, *children, new_job(concurrency=ONE))
    [running] = await claim(store, limit=5)
    assert running.id == first.id
    await finish(store, running)
    assert len(await started(store)) == 1


async def test_a_dependent_that_is_skipped_leaves_nothing(store: Store, bench: Bench) -> None:
    first = new_job(max_attempts=1)
    child = new_job(concurrency=ONE, depends_on=after(first.id))
    await submit(store, first, child)
    await finish(store, (await claim(store))[0], BAD)
    assert (await store.job(child.id)).status is Status.SKIPPED
    assert not await bench.client.exists(bench.keys.concurrency("customer-7"))


async def test_a_purge_also_cancels_held_jobs(store: Store) -> None:
    await submit(store, *jobs(130, concurrency=ONE), *jobs(3), *jobs(120, concurrency=Concurrency("b", 1)))
    [running, *_] = await claim(store)
    assert await store.purge_queue("default") == (252, False)
    await finish(store, running)
    assert await started(store) == []


async def test_a_step_of_a_purge_cancelled_all_held_jobs_of_the_last_key(store: Store) -> None:
    await submit(store, *jobs(4, concurrency=ONE), *jobs(4, concurrency=Concurrency("b", 1)))
    assert len(await started(store)) == 2
    assert await store.scripts.queue_purge("default", 3) == [b"PURGED", 3, 1, 0]
    assert await store.scripts.queue_purge("default", 10) == [b"PURGED", 3, 0, 0]


async def test_what_is_swept_leaves_nothing(store: Store, bench: Bench) -> None:
    await submit(store, *jobs(2, concurrency=ONE))
    for _ in range(2):
        await finish(store, (await claim(store))[0])
    swept = await bench.store(Policy(retention_done_ms=0)).maintenance.sweep()
    assert swept.deleted == 2


@pytest.mark.parametrize("number", [401, 900])
async def test_a_submission_in_chunks_waits_in_line_like_others(store: Store, number: int) -> None:
    await submit(store, *jobs(number, concurrency=TWO))
    assert len(await started(store)) == 2
    assert await store.purge_queue("default") == (number - 2, False)


async def test_a_slot_of_a_job_that_is_no_more_is_taken_back(store: Store, bench: Bench) -> None:
    await submit(store, *jobs(2, concurrency=ONE))
    await bench.client.zadd(bench.keys.slots("customer-7"), {"gone": 1})
    await submit(store, new_job(concurrency=ONE))
    assert len(await started(store)) == 1


@pytest.mark.damaged
async def test_a_key_whose_count_was_damaged_lost_its_limit_while_jobs_waited(store: Store, bench: Bench) -> None:
    """Without a limit, its waiting jobs have no slot."""
    many = jobs(3, concurrency=ONE)
    await submit(store, *many)
    await bench.client.hset(bench.keys.concurrency(ONE.key), "jobs", 1)
    for job in many:
        (running,) = await claim(store)
        assert running.id == job.id
        await finish(store, running)


@pytest.mark.damaged
async def test_a_key_whose_count_was_damaged_lost_its_limit_while_a_job_ran(store: Store, bench: Bench) -> None:
    await submit(store, new_job(concurrency=TWO))
    await claim(store)
    (waiting,) = await submit(store, new_job(concurrency=TWO))
    await bench.client.hset(bench.keys.concurrency(TWO.key), "jobs", 1)
    await store.cancel(waiting)
    assert await bench.client.hget(bench.keys.concurrency(TWO.key), "limit") == b"2"
