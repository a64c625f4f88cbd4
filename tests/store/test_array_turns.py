"""Arrays: tasks that wait for their turn, how an array ends, and entries of its keys that are wrong."""

import pytest

from tests.array_jobs import BAD, array_job, array_of, run_all, tasks_of
from tests.builders import SUCCESS, claim, finish, finish_all, new_job, submit
from tests.expiring import LATER, pass_by
from tests.servers import Bench
from tests.workflows import statuses
from workron.models import Dependency, Reason, Status, When
from workron.store import Store


async def test_two_tasks_that_ended_in_one_call_made_room_for_four(store: Store) -> None:
    array = array_job(6, max_parallel=2)
    await submit(store, array)
    await finish_all(store, await claim(store, limit=2), [SUCCESS] * 2)
    assert [one.id for one in await claim(store, limit=10)] == tasks_of(array)[2:4]


# --- how an array ends ------------------------------------------------------------------------------------------------


async def test_an_array_with_a_failed_and_a_cancelled_task_ended_as_cancelled(store: Store) -> None:
    array = array_job(3, max_parallel=1)
    await submit(store, array)
    await store.cancel_tasks(array.id, [1])
    await run_all(store, 0)
    assert await statuses(store, array) == ["failed"]


async def test_an_array_that_was_cancelled_after_a_task_had_failed_ended_as_failed(store: Store) -> None:
    array = array_job(3, max_parallel=1)
    await submit(store, array)
    (first,) = await claim(store)
    await finish(store, first, BAD)
    (second,) = await claim(store)
    await store.cancel(array.id)
    await finish(store, second)
    assert await statuses(store, array) == ["cancelled"]


async def test_an_array_that_was_cancelled_after_its_deadline_ended_as_expired(bench: Bench) -> None:
    """As for other jobs, the cancel was promised."""
    store = bench.store()
    array = array_job(2, deadline=LATER)
    await submit(store, array)
    (first,) = await claim(store)
    await pass_by(bench, "deadline", array.id)
    await store.maintenance.promote()
    await store.cancel(array.id)
    await finish(store, first)
    await store.maintenance.tidy()
    job = await store.job(array.id)
    assert (job.status, job.reason) == (Status.CANCELLED, Reason.CANCELLED)


# --- wrong entries ----------------------------------------------------------------------------------------------------


@pytest.mark.damaged
async def test_entries_of_turns_that_name_no_waiting_task_run_nothing_and_keep_nothing_waiting(bench: Bench) -> None:
    store = bench.store()
    array = array_job(6, max_parallel=2)
    await submit(store, array)
    first, second = await claim(store, limit=2)
    await finish(store, first)
    done, running, not_created, unknown = 0, 1, 5, 9
    turns = {str(place): place for place in (done, running, not_created, unknown)}
    await bench.client.zadd(f"{bench.keys.array(array.id)}:turns", {**turns, "x": 2})
    (third,) = await claim(store)
    await finish(store, third)
    assert [one.id for one in await run_all(store)] == tasks_of(array)[3:]
    assert await statuses(store, array) == ["blocked"]
    await finish(store, second)
    assert await statuses(store, array) == ["done"]
    assert (await array_of(store, array)).counts[Status.DONE] == 6


@pytest.mark.damaged
async def test_turns_of_a_follower_ran_a_task_again_or_one_that_was_cancelled_or_is_beyond_its_last(
    bench: Bench,
) -> None:
    store = bench.store()
    array = array_job(3)
    edge = Dependency(array.id, When.DONE, matching=True)
    follower = array_job(3, depends_on=[edge], max_parallel=1, queue="behind")
    await submit(store, array, follower)
    await store.cancel_tasks(follower.id, [2])
    await run_all(store)
    await store.maintenance.propagate()
    await finish(store, *(await claim(store, queues=["behind"])))
    (second,) = await claim(store, queues=["behind"])
    turns = {str(place): place for place in (0, 2, 9)}
    await bench.client.zadd(f"{bench.keys.array(follower.id)}:turns", turns)
    await finish(store, second)
    assert await claim(store, queues=["behind"]) == []
    assert await statuses(store, follower, *tasks_of(follower)) == ["cancelled", "done", "done", "None"]


@pytest.mark.damaged
async def test_an_array_whose_hash_was_deleted_ended_with_its_next_task(bench: Bench) -> None:
    store = bench.store()
    array = array_job(2)
    await submit(store, array)
    first, second = await claim(store, limit=2)
    await bench.client.delete(bench.keys.array(array.id))
    await finish(store, first)
    assert await statuses(store, array) == ["blocked"]
    await store.doctor.examine(rebuild=True)
    await finish(store, second)
    assert await statuses(store, array) == ["done"]


@pytest.mark.damaged
async def test_an_array_with_a_damaged_hash_is_recorded_when_a_task_ends(bench: Bench) -> None:
    store = bench.store()
    array = array_job(2)
    await submit(store, array)
    first, second = await claim(store, limit=2)
    whole = await bench.client.dump(bench.keys.array(array.id))
    await bench.client.set(bench.keys.array(array.id), "no hash")
    await finish(store, first)
    assert await bench.client.smembers(bench.keys.quarantine) == {array.id.encode()}
    await bench.client.restore(bench.keys.array(array.id), 0, whole, replace=True)
    await store.doctor.examine(rebuild=True)
    await finish(store, second)
    assert await statuses(store, array) == ["done"]


@pytest.mark.damaged
@pytest.mark.parametrize(("field", "tasks"), [("dropped", 0), ("dropped_as", 0), ("dropped_from", 3)])
async def test_a_retry_of_an_array_that_has_lost_what_it_dropped_stopped_the_call(
    bench: Bench, field: str, tasks: int
) -> None:
    """Without `dropped_from`, its tasks count as cancelled one by one."""
    store = bench.store()
    array, other = array_job(3, delay_ms=600_000), new_job()
    await submit(store, array)
    await store.cancel(array.id)
    await submit(store, other)
    await bench.client.hdel(bench.keys.array(array.id), field)
    await store.retry(array.id)
    assert [one.id for one in await claim(store, limit=5)] == [other.id, *tasks_of(array)[:tasks]]
    assert await bench.client.hget(bench.keys.array(array.id), "made") == b"3"
    await store.doctor.examine(rebuild=True)
