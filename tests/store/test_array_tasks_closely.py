"""Tasks that are cancelled while they wait for their turn, after their end, or twice."""

from tests.array_jobs import BAD, array_job, array_of, run_all, tasks_of
from tests.builders import claim, finish
from tests.workflows import statuses
from workron.models import Status
from workron.store import Store


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
