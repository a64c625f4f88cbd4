"""Arrays: one submission, many tasks."""

import asyncio

import pytest

from tests.array_jobs import BAD, array_job, array_of, run_all, tasks_of
from tests.builders import SUCCESS, after, claim, finish, finish_all, new_job, submit
from tests.queue_limits import limit_queue
from tests.servers import Bench
from workron.errors import QueueFull
from workron.models import (
    Cancelled,
    Job,
    Moment,
    NewJob,
    Outcome,
    Reason,
    Status,
    When,
)
from workron.redis import formats
from workron.store import Store


async def test_each_task_is_run_once_with_its_index_and_what_its_array_says(store: Store) -> None:
    job = array_job(3, command="echo", env={"A": "1"}, cwd="/tmp", timeout_ms=5000, name="many")
    await submit(store, job)
    ran = await run_all(store)
    assert [one.id for one in ran] == tasks_of(job)
    assert [one.more["array"] for one in ran] == [{"id": job.id, "index": i, "size": 3} for i in range(3)]
    assert {(one.command, one.cwd, one.timeout_ms, *one.env) for one in ran} == {("echo", "/tmp", 5000, "A")}
    done = await store.job(job.id)
    assert done.status is Status.DONE
    assert (await array_of(store, job)).counts[Status.DONE] == 3
    task = await store.job(ran[1].id)
    assert (task.command, task.name, task.status, task.created_at_ms) == ("echo", "many", "done", done.created_at_ms)
    assert task.task is not None
    assert (task.task.array, task.task.index) == (job.id, 1)


async def test_each_task_has_its_value(store: Store) -> None:
    values = ["a", "", 'x"\n é', "d"] + [str(i) for i in range(7000)]
    job = array_job(len(values), values=values)
    await submit(store, job)
    claims = await claim(store, limit=5)
    assert [one.more["array"].get("value") for one in claims] == values[:5]


async def test_an_array_waits_blocked_until_its_tasks_have_ended_and_so_do_its_dependents(store: Store) -> None:
    job = array_job(2)
    child = new_job(queue="later", depends_on=after(job.id))
    await submit(store, job, child)
    assert (await store.job(job.id)).status is Status.BLOCKED
    first, second = await claim(store, limit=5)
    await finish(store, first)
    assert (await store.job(child.id)).status is Status.BLOCKED
    await finish(store, second)
    assert (await store.job(job.id)).status is Status.DONE
    assert (await store.job(child.id)).status is Status.PENDING


async def test_one_failed_task_fails_the_array_when_all_have_ended(store: Store) -> None:
    job = array_job(4)
    child = new_job(queue="later", depends_on=after(job.id))
    await submit(store, job, child)
    assert len(await run_all(store, 2)) == 4
    failed = await store.job(job.id)
    assert (failed.status, failed.reason) == (Status.FAILED, Reason.UPSTREAM)
    assert failed.error == "1 of 4 tasks have not succeeded"
    assert (await store.job(child.id)).status is Status.SKIPPED


async def test_tasks_are_tried_as_often_as_their_array_says(store: Store) -> None:
    job = array_job(1, max_attempts=2)
    await submit(store, job)
    [first] = await claim(store)
    assert (await finish(store, first, BAD)).status is Status.SCHEDULED
    [second] = await claim(store, wait=True)
    assert second.attempt == 2
    assert second.more == first.more
    assert (await finish(store, second, BAD)).status is Status.FAILED
    assert (await store.job(job.id)).status is Status.FAILED


async def test_max_parallel_limits_the_tasks_that_can_be_claimed(store: Store) -> None:
    job = array_job(5, max_parallel=2)
    await submit(store, job)
    first, second = await claim(store, limit=10)
    assert await claim(store, limit=10) == []
    await finish(store, first)
    [third] = await claim(store, limit=10)
    assert [one.more["array"]["index"] for one in (first, second, third)] == [0, 1, 2]
    await finish(store, second)
    await finish(store, third)
    assert len(await run_all(store)) == 2
    assert (await store.job(job.id)).status is Status.DONE


async def test_a_large_array_is_made_as_it_is_run(store: Store, bench: Bench) -> None:
    job = array_job(2500)
    await submit(store, job)
    array = await array_of(store, job)
    assert array.rest == 1500
    assert array.counts[Status.PENDING] == 1000
    queue = (await store.queues())[0]
    assert queue.counts[Status.PENDING] == 1000
    ran = await run_all(store)
    assert [one.id for one in ran] == tasks_of(job)
    assert (await store.job(job.id)).status is Status.DONE


async def test_tasks_not_made_yet_count_against_the_limit_of_their_queue(store: Store) -> None:
    await limit_queue(store, "default", 2000)
    with pytest.raises(QueueFull):
        await submit(store, array_job(2000))
    await submit(store, array_job(1999))
    with pytest.raises(QueueFull):
        await submit(store, new_job())


async def test_cancelling_an_array_cancels_what_has_not_ended(store: Store) -> None:
    job = array_job(1500)
    child = new_job(queue="later", depends_on=after(job.id))
    await submit(store, job, child)
    first, second = await claim(store, limit=2)
    await finish(store, first)
    assert await store.cancel(job.id) is Cancelled.CANCELLING
    assert (await store.job(second.id)).cancel_requested_at_ms is not None
    assert await claim(store, limit=10) == []
    assert (await store.job(job.id)).status is Status.BLOCKED
    await finish(store, second, BAD)
    assert (await store.job(job.id)).status is Status.CANCELLED
    counts = (await array_of(store, job)).counts
    assert (counts[Status.DONE], counts[Status.CANCELLED]) == (1, 1499)
    assert (await store.job(child.id)).status is Status.SKIPPED


async def test_an_array_that_has_not_started_is_cancelled_whole(store: Store) -> None:
    job = array_job(50, delay_ms=60_000)
    await submit(store, job)
    assert (await store.job(job.id)).status is Status.SCHEDULED
    assert await store.cancel(job.id) is Cancelled.CANCELLED
    assert (await array_of(store, job)).counts[Status.CANCELLED] == 50


async def test_a_skipped_array_skips_its_tasks_and_runs_when_its_parent_is_mended(store: Store) -> None:
    parent = new_job(max_attempts=1)
    job = array_job(3, depends_on=after(parent.id))
    await submit(store, parent, job)
    [running] = await claim(store, limit=5)
    await finish(store, running, BAD)
    assert (await store.job(job.id)).status is Status.SKIPPED
    assert (await array_of(store, job)).counts[Status.SKIPPED] == 3
    await store.retry(parent.id)
    [running] = await claim(store, limit=5)
    await finish(store, running)
    assert len(await run_all(store)) == 3
    assert (await store.job(job.id)).status is Status.DONE


async def test_retrying_an_array_runs_again_what_has_not_succeeded(store: Store) -> None:
    job = array_job(5)
    child = new_job(queue="later", depends_on=after(job.id))
    await submit(store, job, child)
    await run_all(store, 1, 3)
    await store.retry(job.id)
    assert (await store.job(child.id)).status is Status.BLOCKED
    again = await claim(store, limit=10)
    assert [one.more["array"]["index"] for one in again] == [1, 3]
    for one in again:
        await finish(store, one)
    assert (await store.job(job.id)).status is Status.DONE
    assert (await store.job(child.id)).status is Status.PENDING


async def test_retrying_a_cancelled_array_runs_also_what_was_never_made(store: Store) -> None:
    job = array_job(1200)
    await submit(store, job)
    await store.cancel(job.id)
    assert (await store.job(job.id)).status is Status.CANCELLED
    await store.retry(job.id)
    assert len(await run_all(store)) == 1200
    assert (await store.job(job.id)).status is Status.DONE


async def test_retrying_one_task_opens_its_array_again(store: Store) -> None:
    job = array_job(3)
    child = new_job(queue="later", depends_on=after(job.id))
    await submit(store, job, child)
    await run_all(store, 1)
    await store.retry(tasks_of(job)[1])
    assert (await store.job(job.id)).status is Status.BLOCKED
    assert len(await run_all(store)) == 1
    assert (await store.job(job.id)).status is Status.DONE
    assert (await store.job(child.id)).status is Status.PENDING


async def test_the_submitter_may_die_before_it_has_worked_on_the_array(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dies(*_: object) -> None:
        raise RuntimeError

    job = array_job(700)
    with monkeypatch.context() as patched:
        patched.setattr("workron.store.arrays.Arrays.work_on_quietly", dies)
        with pytest.raises(RuntimeError):
            await submit(store, job)
    assert (await array_of(store, job)).counts[Status.PENDING] == 100
    await store.maintenance.tidy()
    assert (await array_of(store, job)).counts[Status.PENDING] == 700
    assert len(await run_all(store)) == 700


async def test_an_array_in_a_workflow_that_takes_many_calls(store: Store) -> None:
    job = array_job(30)
    others = [new_job() for _ in range(500)]
    await store.submit([job, *others], as_workflow=True)
    ran = []
    while claims := await claim(store, limit=100):
        await finish_all(store, claims, [SUCCESS] * len(claims))
        ran += claims
    assert len(ran) == 530
    assert (await store.job(job.id)).status is Status.DONE


async def test_a_repeated_submission_is_one_array(store: Store) -> None:
    job = array_job(3, values=["a", "b", "c"])
    await submit(store, job)
    await submit(store, job)
    assert len(await run_all(store)) == 3


async def listed(store: Store, job: NewJob) -> list[Job | None]:
    return await store.jobs(tasks_of(job))


async def test_a_lost_task_goes_back_and_is_run_again(store: Store) -> None:
    job = array_job(2, max_attempts=2)
    await submit(store, job)
    [first, second] = await claim(store, limit=2)
    await finish(store, first)
    assert await store.attempts.release([(second.id, second.fence)]) == [Status.PENDING]
    assert len(await run_all(store)) == 1
    assert [task and task.status for task in await listed(store, job)] == [Status.DONE, Status.DONE]


async def test_an_array_that_is_not_done_by_its_deadline_fails_and_its_tasks_are_stopped(store: Store) -> None:
    job = array_job(5, deadline=Moment(after_ms=1500))
    await submit(store, job)
    [running] = await claim(store)
    await asyncio.sleep(1.6)
    await store.maintenance.promote()
    await store.maintenance.tidy()
    assert (await store.job(running.id)).cancel_requested_at_ms is not None
    assert await claim(store) == []
    await finish(store, running, Outcome(Reason.CANCELLED, signal=15))
    failed = await store.job(job.id)
    assert (failed.status, failed.reason) == (Status.FAILED, Reason.EXPIRED)
    assert (await array_of(store, job)).counts[Status.CANCELLED] == 5


async def test_an_array_that_has_not_started_in_time_is_cancelled_whole(bench: Bench) -> None:
    store = bench.store()
    parent = new_job(delay_ms=3_600_000)
    late, started = (array_job(3, expires=Moment(after_ms=1_800_000), queue=queue) for queue in ("late", "default"))
    late.depends_on = after(parent.id)
    await submit(store, parent, late, started)
    [begun] = await claim(store)
    for job in (late, started):  # half an hour passes
        await bench.client.hset(bench.keys.job(job.id), "expires_at", 1)
        await bench.client.zadd(bench.keys.due, {formats.timer("expires", job.id): 1})
    await store.maintenance.promote()
    assert (await store.job(late.id)).status is Status.CANCELLED
    await finish(store, begun)
    assert len(await run_all(store)) == 2
    assert (await store.job(started.id)).status is Status.DONE


async def test_an_array_of_which_no_task_had_started_in_time_ran_all_the_same(bench: Bench) -> None:
    store = bench.store()
    job = array_job(3, expires=Moment(after_ms=50), max_parallel=2)
    await submit(store, job)
    await asyncio.sleep(0.1)
    await store.maintenance.promote()
    while await bench.client.zcard(bench.keys.arrays):
        await store.maintenance.tidy()
    expired = await store.job(job.id)
    assert (expired.status, expired.reason) == (Status.CANCELLED, Reason.EXPIRED)
    assert (await array_of(store, job)).counts[Status.CANCELLED] == 3
    assert await claim(store, limit=5) == []
    await bench.client.hset(bench.keys.job(job.id), "expires_ms", "60000")  # for the next run there is time
    await store.retry(job.id)
    assert len(await run_all(store)) == 3
    assert (await store.job(job.id)).status is Status.DONE


async def test_an_array_that_was_damaged_took_the_jobs_behind_it_out_of_their_list(bench: Bench) -> None:
    store = bench.store()
    job = array_job(2, values=["a", "b"])
    plain = new_job()
    await submit(store, job, plain)
    await bench.client.delete(bench.keys.array_values(job.id))
    await bench.client.set(bench.keys.array_values(job.id), "damaged")
    claims = await claim(store, limit=5)
    assert [one.id for one in claims] == [plain.id, *tasks_of(job)]
    assert [one.command for one in claims] == ["true", None, None]
    for one in claims:
        await finish(store, one, BAD if one.command is None else SUCCESS)
    assert (await store.job(job.id)).status is Status.FAILED
    await bench.client.delete(bench.keys.array_values(job.id))


async def test_an_array_that_had_begun_was_skipped_when_the_job_before_it_was_retried(store: Store) -> None:
    parent = new_job(max_attempts=1)
    job = array_job(3, max_parallel=1, depends_on=after(parent.id, when=When.FAILED))
    await submit(store, parent, job)
    await finish(store, (await claim(store))[0], BAD)
    [first] = await claim(store)
    await store.retry(parent.id)
    await finish(store, first)
    for expected in (Status.BLOCKED, Status.BLOCKED, Status.DONE):
        await finish(store, (await claim(store))[0])
        assert (await store.job(job.id)).status is expected
    assert [(await store.job(one.id)).status for one in (parent, job)] == [Status.DONE, Status.DONE]
