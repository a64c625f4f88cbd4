"""Tasks that are cancelled while they wait for their turn, after their end, or twice."""

import asyncio

import pytest

from tests.array_jobs import BAD, array_job, array_of, run_all, tasks_of
from tests.builders import claim, finish, finish_all, submit
from tests.servers import Bench
from tests.workflows import statuses
from workron.errors import Conflict
from workron.models import Dependency, Status, When
from workron.store import Store
from workron.store.policy import Policy


async def test_a_task_that_was_cancelled_while_it_waited_for_its_turn_does_not_run(store: Store) -> None:
    array = array_job(2, max_parallel=1)
    await store.submit([array])
    await run_all(store, 0, 1)
    await store.retry_tasks(array.id, [0, 1])
    (first,) = await claim(store)
    await store.cancel_tasks(array.id, [1])
    await finish(store, first)
    assert await claim(store) == []
    assert await statuses(store, *tasks_of(array)) == ["done", "failed"]


async def test_a_cancel_of_a_task_that_has_failed_changes_nothing(store: Store) -> None:
    array = array_job(2)
    await store.submit([array])
    (first,) = await claim(store)
    await finish(store, first, BAD)
    assert await store.cancel_tasks(array.id, [0]) == {"ended": 1}
    assert await statuses(store, first.id) == ["failed"]


async def test_a_task_that_was_cancelled_before_it_was_made_is_counted_once(store: Store) -> None:
    array = array_job(3, max_parallel=1)
    await store.submit([array])
    (first,) = await claim(store)
    await store.cancel_tasks(array.id, [1])
    await finish(store, first)
    (last,) = await claim(store)
    await store.cancel_tasks(array.id, [1])
    assert (await array_of(store, array)).counts[Status.CANCELLED] == 1
    await finish(store, last)
    assert await statuses(store, array) == ["cancelled"]


@pytest.mark.damaged
async def test_a_task_whose_array_is_gone_cannot_be_retried(store: Store, bench: Bench) -> None:
    array = array_job(1)
    await store.submit([array])
    (task,) = await run_all(store, 0)
    await bench.client.delete(bench.keys.job(array.id))
    assert await store.scripts.job_retry(task.id, "") == [b"UNKNOWN"]
    assert await bench.client.hget(bench.keys.job(task.id), "status") == b"failed"


async def test_a_task_that_was_skipped_with_the_one_it_follows_cannot_be_retried_alone(store: Store) -> None:
    first, second = array_job(1), array_job(1)
    second.depends_on = (Dependency(first.id, When.DONE, matching=True),)
    await submit(store, first, second)
    await run_all(store, 0)
    (task,) = tasks_of(second)
    assert await statuses(store, task) == ["skipped"]
    with pytest.raises(Conflict):
        await store.retry(task)
    assert await statuses(store, task) == ["skipped"]


@pytest.mark.parametrize("follows", [False, True], ids=["alone", "follows"])
async def test_a_task_that_was_done_and_swept_can_be_neither_cancelled_nor_retried(bench: Bench, follows: bool) -> None:
    """A cancel counted it a second time, and its array ended before its last task."""
    store = bench.store(Policy(retention_done_ms=0))
    first, array = array_job(2, queue="first"), array_job(2)
    if follows:
        array.depends_on = (Dependency(first.id, When.FINISHED, matching=True),)
    await submit(store, first, array)
    await finish_all(store, ended := await claim(store, queues=["first"], limit=2), [BAD] * len(ended))
    done, _ = await claim(store, limit=2)
    await finish(store, done)
    await asyncio.sleep(0.01)
    await store.maintenance.sweep()
    assert await statuses(store, done.id) == ["None"]
    assert await store.cancel_tasks(array.id, [0]) == {"ended": 1}
    assert await store.retry_tasks(array.id, [0]) == {"ended": 1}
    counts = (await array_of(store, array)).counts
    assert (counts[Status.DONE], counts.get(Status.CANCELLED, 0)) == (1, 0)


async def test_a_failed_task_is_retried_by_its_own_id(store: Store) -> None:
    array = array_job(2)
    await submit(store, array)
    await run_all(store, 1)
    task = tasks_of(array)[1]
    await store.retry(task)
    assert await statuses(store, task, array) == ["pending", "blocked"]
    await run_all(store)
    assert await statuses(store, task, array) == ["done", "done"]
