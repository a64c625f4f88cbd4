"""Tasks that follow those of another array, and tasks that are cancelled and retried one by one."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

from tests.array_jobs import BAD, array_job, array_of, run_all, tasks_of
from tests.builders import claim, finish, new_job, submit
from tests.servers import Bench
from workron.errors import Conflict, InvalidRequest
from workron.models import Cancelled, Claim, Dependency, JobFilter, NewJob, Outcome, Reason, Status, When
from workron.models.retry import RetryPolicy
from workron.store import Store
from workron.store.policy import Policy


def follower(job: NewJob, when: When = When.DONE, **fields: Any) -> NewJob:
    assert job.array is not None
    return array_job(job.array.size, depends_on=[Dependency(job.id, when, matching=True)], **fields)


def indexes(claims: Sequence[Claim]) -> list[int]:
    return [one.more["array"]["index"] for one in claims]


async def test_tasks_follow_the_tasks_with_the_same_index_in_another_array(store: Store) -> None:
    job = array_job(3)
    behind = follower(job, queue="behind")
    await submit(store, job, behind)
    first, second, third = await claim(store, limit=3)
    assert await claim(store, queues=["behind"], limit=3) == []
    await finish(store, second)
    [follows] = await claim(store, queues=["behind"], limit=3)
    assert indexes([follows]) == [1]
    await finish(store, third, BAD)
    await finish(store, first)
    assert indexes([*await claim(store, queues=["behind"], limit=3)]) == [0]
    counts = (await array_of(store, behind)).counts
    assert (counts[Status.RUNNING], counts[Status.SKIPPED]) == (2, 1)


async def test_what_has_ended_before_is_followed_too(store: Store) -> None:
    job = array_job(150)
    await submit(store, job)
    await run_all(store, 7)
    behind = follower(job)
    await submit(store, behind)
    assert len(await run_all(store)) == 149
    assert (await store.job(behind.id)).status is Status.FAILED
    await store.retry(tasks_of(job)[7])
    assert len(await run_all(store)) == 2
    assert (await store.job(behind.id)).status is Status.DONE


async def test_an_array_that_follows_a_cancelled_one_is_skipped(store: Store) -> None:
    job = array_job(1200)
    behind = follower(job)
    at_any_end = follower(job, When.FINISHED)
    await submit(store, job, behind, at_any_end)
    await store.cancel(job.id)
    await store.maintenance.tidy()
    assert (await array_of(store, behind)).counts[Status.SKIPPED] == 1200
    assert len(await run_all(store)) == 1200
    assert (await store.job(at_any_end.id)).status is Status.DONE


async def test_some_tasks_are_cancelled_and_retried_by_their_indexes(store: Store) -> None:
    job = array_job(1500)
    await submit(store, job)
    words = await store.cancel_tasks(job.id, [0, 5, 1400, 1401, 1402])
    assert words == {"cancelled": 5}
    assert await store.cancel_tasks(job.id, [1400]) == {"cancelled": 1}
    assert await store.retry_tasks(job.id, [5, 1401]) == {"retried": 2}
    ran = await run_all(store)
    assert sorted(indexes(ran)) == [i for i in range(1500) if i not in (0, 1400, 1402)]
    assert (await store.job(job.id)).status is Status.CANCELLED
    assert await store.retry_tasks(job.id, [0, 1, 1400, 1402]) == {"retried": 3, "ended": 1}
    assert len(await run_all(store)) == 3
    assert (await store.job(job.id)).status is Status.DONE


async def test_missing_tasks_are_reported(store: Store) -> None:
    job = array_job(3)
    await submit(store, job)
    with pytest.raises(InvalidRequest, match="tasks 0 to 2"):
        await store.cancel_tasks(job.id, [1, 3])
    plain = new_job()
    await submit(store, plain)
    with pytest.raises(Conflict, match="no array"):
        await store.cancel_tasks(plain.id, [1])


async def test_a_running_task_gets_the_cancel(store: Store) -> None:
    job = array_job(2)
    await submit(store, job)
    first, _ = await claim(store, limit=2)
    assert await store.cancel_tasks(job.id, [0]) == {"cancelling": 1}
    assert (await finish(store, first)).status is Status.CANCELLED


async def test_the_policy_of_an_array_is_that_of_its_tasks(store: Store) -> None:
    policy = RetryPolicy(delay_ms=0)
    job = array_job(2, max_attempts=5, retry=policy, no_retry_on_exit=[3])
    await submit(store, job)
    first, second = await claim(store, limit=2)
    assert (await finish(store, first, BAD)).status is Status.FAILED
    other = Outcome(Reason.EXIT_CODE, exit_code=4)
    assert (await finish(store, second, other)).status is Status.SCHEDULED
    [again] = await claim(store, wait=True)
    assert (again.id, again.attempt) == (second.id, 2)


async def test_a_task_has_its_arrays_labels_and_knows_the_result_of_the_one_that_it_follows(store: Store) -> None:
    job = array_job(2)
    behind = follower(job, queue="behind", tags=["nightly"], metadata={"a": 1})
    await submit(store, job, behind)
    for number, one in enumerate(await claim(store, limit=2)):
        await finish(store, one, Outcome(None, exit_code=0, result=str(number)))
    for number, one in enumerate(await claim(store, queues=["behind"], limit=2)):
        assert one.more["parents"]
        assert [(parent.id, parent.result) for parent in await store.attempts.parents(one.id)] == [
            (tasks_of(job)[number], number)
        ]
        task = await store.job(one.id)
        assert (task.tags, task.metadata) == (("nightly",), {"a": 1})


@pytest.mark.large
async def test_a_request_hung_until_a_million_tasks_were_visited(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    job = array_job(20_000)
    await submit(store, job)
    await finish(store, (await claim(store))[0])  # else there is nothing to be gone over
    monkeypatch.setattr("workron.store.arrays._IN_A_REQUEST_S", 0.05)
    began = time.monotonic()
    behind = follower(job, queue="behind")
    await submit(store, behind)
    assert time.monotonic() - began < 2
    assert await store.connection.call("ZSCORE", store.keys.arrays, behind.id) is not None
    await store.cancel(behind.id)
    while await store.connection.call("ZCARD", store.keys.arrays):  # the reaper goes on, pass by pass
        await store.maintenance.tidy(0.05)
    assert (await store.job(behind.id)).status is Status.CANCELLED


async def test_a_listing_ends_behind_the_last_task_that_was_made(store: Store) -> None:
    job = array_job(100_000)
    await submit(store, job)
    await claim(store, limit=2)
    pages, cursor = 0, None
    found: list[int] = []
    while pages == 0 or cursor is not None:
        page = await store.list_jobs(JobFilter(Status.RUNNING, array=job.id), limit=50, cursor=cursor)
        found += [task.task.index for task in page.jobs if task.task]
        cursor, pages = page.next_cursor, pages + 1
    assert found == [0, 1]
    assert pages <= 3


async def test_tasks_of_a_cancelled_array_that_follows_another_were_counted_twice(store: Store) -> None:
    job = array_job(5)
    behind = follower(job, queue="behind")
    await submit(store, job, behind)
    await store.cancel(behind.id)
    assert (await store.job(behind.id)).status is Status.CANCELLED
    assert (await array_of(store, behind)).counts[Status.CANCELLED] == 5
    await store.retry(behind.id)
    assert len(await run_all(store)) == 5
    while claims := await claim(store, queues=["behind"], limit=5):
        for one in claims:
            await finish(store, one)
    assert (await array_of(store, behind)).counts[Status.DONE] == 5
    assert (await store.job(behind.id)).status is Status.DONE


async def test_the_sweep_left_the_indexes_of_cancelled_tasks_behind(bench: Bench) -> None:
    store = bench.store(Policy(retention_done_ms=1, retention_failed_ms=1))
    job, behind = array_job(3), array_job(3, values=["a", "b", "c"], max_parallel=1)
    await submit(store, job, behind)
    await store.cancel_tasks(behind.id, [2])
    await store.cancel(behind.id)
    await run_all(store)
    await asyncio.sleep(0.01)
    await store.maintenance.sweep()
    assert await bench.client.keys(f"{bench.keys.array('')}*") == []


async def test_a_retry_of_an_array_ran_tasks_again_that_were_done_and_swept(bench: Bench) -> None:
    store = bench.store(Policy(retention_done_ms=1))
    job = array_job(3)
    await submit(store, job)
    assert len(await run_all(store, 1)) == 3
    await asyncio.sleep(0.01)
    assert (await store.maintenance.sweep()).deleted == 2
    await store.retry(job.id)
    assert [one.id for one in await run_all(store)] == [tasks_of(job)[1]]
    assert (await store.job(job.id)).status is Status.DONE


async def test_a_failed_task_stays_as_long_as_its_array_and_leaves_after_it(bench: Bench) -> None:
    store = bench.store(Policy(retention_done_ms=1, retention_failed_ms=1))
    job = array_job(2)
    await submit(store, job)
    [first, second] = await claim(store, limit=2)
    await finish(store, first, BAD)
    await asyncio.sleep(0.01)
    assert (await store.maintenance.sweep()).deleted == 0
    assert (await store.job(first.id)).status is Status.FAILED
    await finish(store, second)
    await asyncio.sleep(0.01)
    for _ in range(3):  # the array, then its task
        await store.maintenance.sweep()
    assert await bench.client.keys(f"{bench.keys.job('')}*") == []
    assert await bench.client.keys(f"{bench.keys.array('')}*") == []


async def test_a_retry_of_many_tasks_exceeded_max_parallel(store: Store) -> None:
    job = array_job(6, max_parallel=2)
    await submit(store, job)
    await store.cancel_tasks(job.id, [5])
    await run_all(store, 0, 1, 2, 3, 4)
    await store.retry(job.id)
    ran: list[int] = []
    while claims := await claim(store, limit=10):
        assert len(claims) <= 2
        for one in claims:
            await finish(store, one)
        ran += indexes(claims)
    assert sorted(ran) == [0, 1, 2, 3, 4, 5]
    assert (await store.job(job.id)).status is Status.DONE


async def test_tasks_retried_by_their_indexes_wait_for_their_turn_too(store: Store) -> None:
    job = array_job(6, max_parallel=2)
    await submit(store, job)
    await run_all(store, 0, 1, 2, 3)
    assert await store.retry_tasks(job.id, [0, 1, 2, 3]) == {"retried": 4}
    assert await store.retry_tasks(job.id, [0, 1, 2, 3]) == {"not_ended": 4}
    assert (await store.job(job.id)).status is Status.BLOCKED
    assert len(await claim(store, limit=10)) == 2
    assert await store.cancel(job.id) is Cancelled.CANCELLING
    counts = (await array_of(store, job)).counts
    assert (counts[Status.DONE], counts[Status.FAILED], counts[Status.RUNNING]) == (2, 2, 2)


async def test_a_task_that_was_dropped_and_retried_alone_would_run_twice(store: Store) -> None:
    job = array_job(1500)
    await submit(store, job)
    await store.cancel(job.id)
    with pytest.raises(Conflict, match="retry the whole array"):
        await store.retry_tasks(job.id, [0, 1400])
    assert (await array_of(store, job)).counts[Status.CANCELLED] == 1500
    assert await store.retry_tasks(job.id, [0]) == {"retried": 1}
    assert indexes(await run_all(store)) == [0]
    await store.retry(job.id)
    assert sorted(indexes(await run_all(store))) == list(range(1, 1500))
    assert (await store.job(job.id)).status is Status.DONE


async def test_the_cancel_of_the_followed_array_hid_that_of_the_one_that_follows(store: Store) -> None:
    job = array_job(1200)
    behind = follower(job, When.FINISHED, queue="behind")
    await submit(store, job, behind)
    for one in await claim(store, limit=10):
        await finish(store, one)
    for array in (behind, job):
        reply = await store.scripts.job_cancel(array.id, "")
        assert reply[0] == b"CANCELLING"
    while await store.connection.call("ZCARD", store.keys.arrays):
        await store.maintenance.tidy()
    assert await claim(store, queues=["behind"], limit=50) == []
    assert (await store.job(behind.id)).status is Status.CANCELLED


async def test_tasks_that_follow_others_keep_to_max_parallel(store: Store) -> None:
    job = array_job(6)
    behind = follower(job, queue="behind", max_parallel=2)
    await submit(store, job, behind)
    await run_all(store, 4)
    await store.cancel_tasks(behind.id, [5])
    ran: list[int] = []
    while claims := await claim(store, queues=["behind"], limit=10):
        assert len(claims) <= 2
        for one in claims:
            await finish(store, one)
        ran += indexes(claims)
    assert sorted(ran) == [0, 1, 2, 3]
    counts = (await array_of(store, behind)).counts
    assert (counts[Status.SKIPPED], counts[Status.CANCELLED]) == (1, 1)
    assert (await store.job(behind.id)).status is Status.FAILED
