"""Unique keys: one job at a time holds one, and gives it back whichever way it ends."""

import asyncio
from typing import Any

import pytest

from tests.builders import SUCCESS, after, claim, finish, jobs, new_job, reap_all, submit
from tests.queue_limits import limit_queue
from tests.servers import Bench
from tests.unique_keys import holder, refused, unique
from workron import ids
from workron.errors import Conflict, QueueFull, UniqueConflict
from workron.models import Dependency, JobFilter, NewArray, Outcome, Reason, Status, When
from workron.settings import Settings
from workron.store import Store
from workron.store.policy import Policy

FAILURE = Outcome(Reason.EXIT_CODE, exit_code=1)


async def test_the_second_job_of_a_key_is_refused_with_the_holder(store: Store, bench: Bench) -> None:
    (first,) = await submit(store, new_job(unique=unique()))
    assert await refused(store) == first
    assert await holder(bench) == f"{first} 1"
    assert (await store.job(first)).unique == unique()
    await submit(store, new_job(unique=unique(key="other key, with words")))
    assert len((await store.list_jobs(JobFilter())).jobs) == 2


async def test_the_holder_is_answered_instead(store: Store) -> None:
    (first,) = await submit(store, new_job(unique=unique()))
    second = await store.submit([new_job(unique=unique("return"))])
    assert second.ids == (first,)
    assert second.returned
    assert second.stored_at_ms is None
    assert len((await store.list_jobs(JobFilter())).jobs) == 1


async def test_a_waiting_holder_is_replaced(store: Store, bench: Bench) -> None:
    for waits in ({}, {"delay_ms": 60_000}, {"depends_on": after(*await submit(store, new_job(queue="parents")))}):
        (first,) = await submit(store, new_job(unique=unique("replace"), **waits))
        (second,) = await submit(store, new_job(unique=unique("replace"), queue="later"))
        job = await store.job(first)
        assert (job.status, job.reason, job.error) == (Status.CANCELLED, Reason.CANCELLED, f"replaced by job {second}")
        assert await holder(bench) == f"{second} 1"
        await store.cancel(second)


async def test_dependents_of_a_replaced_job_are_skipped_at_once(store: Store) -> None:
    (first,) = await submit(store, new_job(unique=unique()))
    (child,) = await submit(store, new_job(depends_on=after(first)))
    await submit(store, new_job(unique=unique("replace")))
    assert (await store.job(child)).status is Status.SKIPPED


async def test_a_running_holder_is_not_replaced(store: Store) -> None:
    (first,) = await submit(store, new_job(unique=unique()))
    await claim(store)
    with pytest.raises(UniqueConflict, match=first):
        await submit(store, new_job(unique=unique("replace")))
    await store.cancel(first)
    assert await refused(store) == first


async def test_an_array_that_has_started_is_not_replaced_and_one_that_waits_is(store: Store, bench: Bench) -> None:
    def array() -> NewArray:
        return NewArray(ids.new_id(), 3)

    (first,) = await submit(store, new_job(unique=unique(), array=array()))
    with pytest.raises(UniqueConflict):
        await submit(store, new_job(unique=unique("replace")))
    for _ in range(3):
        (got,) = await claim(store)
        assert await refused(store) == first
        await finish(store, got)
    assert await holder(bench) is None
    (waiting,) = await submit(store, new_job(unique=unique(), array=array(), delay_ms=60_000))
    await submit(store, new_job(unique=unique("replace")))
    assert (await store.job(waiting)).status is Status.CANCELLED


async def test_every_end_frees_the_key(store: Store, bench: Bench) -> None:
    async def held(**fields: Any) -> str:
        (job_id,) = await submit(store, new_job(unique=unique(), **fields))
        assert await holder(bench) == f"{job_id} 1"
        return job_id

    await held()
    await finish(store, (await claim(store))[0])
    assert await holder(bench) is None
    await held(max_attempts=1)
    await finish(store, (await claim(store))[0], FAILURE)
    assert await holder(bench) is None
    await store.cancel(await held())
    assert await holder(bench) is None
    running = await held()
    (got,) = await claim(store)
    await store.cancel(running)
    await finish(store, got, FAILURE)
    assert await holder(bench) is None
    (parent,) = await submit(store, new_job(queue="parents"))
    await held(depends_on=after(parent))
    await store.cancel(parent)
    assert await holder(bench) is None
    await held(max_attempts=1)
    await claim(store)
    await reap_all(store)
    assert await holder(bench) is None
    await held()


async def test_a_failed_attempt_or_a_lost_lease_frees_nothing(store: Store, bench: Bench) -> None:
    (job_id,) = await submit(store, new_job(unique=unique()))
    (got,) = await claim(store)
    await finish(store, got, FAILURE)
    assert await refused(store) == job_id
    await claim(store, wait=True)
    await reap_all(store)
    assert await holder(bench) == f"{job_id} 1"


async def test_a_key_until_started_is_free_with_the_claim(store: Store, bench: Bench) -> None:
    (first,) = await submit(store, new_job(unique=unique(until="started")))
    assert await refused(store) == first
    (got,) = await claim(store)
    assert await holder(bench) is None
    (second,) = await submit(store, new_job(unique=unique(until="started")))
    await finish(store, got)
    assert await holder(bench) == f"{second} 1"  # the end of the first does not free what the second holds


async def test_a_job_that_waits_again_has_its_key_again_if_it_is_free(store: Store, bench: Bench) -> None:
    (first,) = await submit(store, new_job(unique=unique(until="started")))
    (got,) = await claim(store)
    await store.attempts.release([(got.id, got.fence)])
    assert await holder(bench) == f"{first} 1"
    (got,) = await claim(store)
    (second,) = await submit(store, new_job(unique=unique(until="started")))
    await store.attempts.release([(got.id, got.fence)])
    assert await holder(bench) == f"{second} 1"


async def test_a_retry_takes_the_key_again_or_names_its_holder(store: Store, bench: Bench) -> None:
    (first,) = await submit(store, new_job(unique=unique()))
    await store.cancel(first)
    (second,) = await submit(store, new_job(unique=unique()))
    with pytest.raises(UniqueConflict, match=second):
        await store.retry(first)
    assert (await store.job(first)).run == 1
    await store.cancel(second)
    await store.retry(first)
    assert await holder(bench) == f"{first} 2"
    await finish(store, (await claim(store))[0])
    assert await holder(bench) is None


async def test_a_rearmed_job_whose_key_is_taken_ends_cancelled(store: Store, bench: Bench) -> None:
    (parent,) = await submit(store, new_job())
    (child,) = await submit(store, new_job(depends_on=after(parent), unique=unique()))
    (grandchild,) = await submit(store, new_job(depends_on=after(child)))
    await store.cancel(parent)
    (other,) = await submit(store, new_job(unique=unique(), delay_ms=60_000))
    await store.retry(parent)
    job = await store.job(child)
    assert (job.status, job.error) == (Status.CANCELLED, f"cancelled: job {other} holds its unique key")
    assert (await store.job(grandchild)).status is Status.SKIPPED
    await store.cancel(other)
    await store.retry(child)
    assert (await store.job(child)).status is Status.BLOCKED
    assert await holder(bench) == f"{child} 3"


async def test_a_job_whose_key_is_taken_stays_cancelled_when_all_it_waits_for_is_done(store: Store) -> None:
    """Its parent was retried and done again before the edge was visited: it must not become pending."""
    (parent,) = await submit(store, new_job(max_attempts=1))
    await store.submit(jobs(450, depends_on=after(parent), queue="many"))
    (child,) = await submit(store, new_job(depends_on=after(parent), unique=unique()))
    await finish(store, (await claim(store))[0], FAILURE)
    await submit(store, new_job(unique=unique(), delay_ms=60_000))
    await store.scripts.job_retry(parent, "")
    await finish(store, (await claim(store))[0])
    await store.maintenance.propagate()
    assert (await store.job(child)).status is Status.CANCELLED


async def test_tasks_are_not_run_again_while_the_key_of_their_array_is_taken(store: Store) -> None:
    (first,) = await submit(store, new_job(unique=unique(), array=NewArray(ids.new_id(), 2), max_attempts=1))
    for _ in range(2):
        await finish(store, (await claim(store))[0], FAILURE)
    assert (await store.job(first)).status is Status.FAILED
    (other,) = await submit(store, new_job(unique=unique()))
    with pytest.raises(UniqueConflict, match=other):
        await store.retry_tasks(first, [0])
    with pytest.raises(UniqueConflict, match=other):
        await store.retry(first)
    await store.cancel(other)
    await store.retry_tasks(first, [0])
    assert await refused(store) == first


async def test_a_key_is_held_no_longer_than_its_ttl(store: Store, bench: Bench) -> None:
    (first,) = await submit(store, new_job(unique=unique(ttl_ms=60_000)))
    assert 50_000 < await bench.client.pttl(bench.keys.unique("k")) <= 60_000
    await bench.client.delete(bench.keys.unique("k"))  # as if its time had come
    (second,) = await submit(store, new_job(unique=unique()))
    await store.cancel(first)
    assert await holder(bench) == f"{second} 1"


@pytest.mark.parametrize("left", ["0000000000000000000000 1", "nonsense", ""])
async def test_a_key_that_names_no_job_heals(store: Store, bench: Bench, left: str) -> None:
    await bench.client.set(bench.keys.unique("k"), left)
    (job_id,) = await submit(store, new_job(unique=unique()))
    assert await holder(bench) == f"{job_id} 1"


async def test_a_key_that_names_an_ended_job_or_an_earlier_run_heals(store: Store, bench: Bench) -> None:
    (ended,) = await submit(store, new_job(unique=unique()))
    await store.cancel(ended)
    await bench.client.set(bench.keys.unique("k"), f"{ended} 1")
    (second,) = await submit(store, new_job(unique=unique()))
    await bench.client.set(bench.keys.unique("k"), f"{second} 7")
    (third,) = await submit(store, new_job(unique=unique()))
    assert await holder(bench) == f"{third} 1"


@pytest.mark.damaged
async def test_a_key_of_another_type_heals_too(store: Store, bench: Bench) -> None:
    await bench.client.rpush(bench.keys.unique("k"), "x")
    (job_id,) = await submit(store, new_job(unique=unique()))
    assert await holder(bench) == f"{job_id} 1"


async def test_of_many_at_once_one_gets_the_key(store: Store, bench: Bench) -> None:
    stores = [store, bench.store(), bench.store()]
    tries = [submit(one, new_job(unique=unique())) for one in stores for _ in range(10)]
    results = await asyncio.gather(*tries, return_exceptions=True)
    got = [result for result in results if isinstance(result, list)]
    assert len(got) == 1
    assert {result.job_id for result in results if isinstance(result, UniqueConflict)} == {got[0][0]}


async def test_of_many_replacements_at_once_the_last_is_left(store: Store, bench: Bench) -> None:
    tries = [submit(one, new_job(unique=unique("replace"))) for one in (store, bench.store()) for _ in range(10)]
    ids = [ids[0] for ids in await asyncio.gather(*tries)]
    statuses = [job.status for job in await store.jobs(ids) if job]
    assert sorted(statuses) == [Status.CANCELLED] * 19 + [Status.PENDING]
    (got,) = await claim(store, limit=20)
    assert await holder(bench) == f"{got.id} 1"


async def test_a_replacement_needs_no_further_room(bench: Bench) -> None:
    store = bench.store()
    await limit_queue(store, "default", 1)
    await submit(store, new_job(unique=unique()))
    with pytest.raises(QueueFull):
        await submit(store, new_job(unique=unique(key="other")))
    await submit(store, new_job(unique=unique("replace")))
    await limit_queue(store, "default", None)


@pytest.mark.parametrize("total", [False, True])
async def test_a_replacement_was_refused_above_a_lowered_limit(bench: Bench, total: bool) -> None:
    store = bench.store()
    await submit(store, new_job(unique=unique()), new_job())
    if total:
        await store.limit_all(Settings(max_pending_total=1))
    else:
        await limit_queue(store, "default", 1)
    (second,) = await submit(store, new_job(unique=unique("replace")))
    assert await holder(bench) == f"{second} 1"


async def test_a_key_goes_with_the_sweep_of_its_job(bench: Bench) -> None:
    store = bench.store(Policy(retention_done_ms=0, retention_failed_ms=0))
    (job_id,) = await submit(store, new_job(unique=unique()))
    await store.cancel(job_id)
    await store.maintenance.sweep()
    assert [key async for key in bench.client.scan_iter(f"{bench.keys.prefix}*{job_id}*")] == []
    await submit(store, new_job(unique=unique()))


async def test_a_conflict_is_a_conflict(store: Store) -> None:
    (first,) = await submit(store, new_job(unique=unique()))
    with pytest.raises(Conflict, match=f"job {first} holds the unique key k"):
        await submit(store, new_job(unique=unique()))


async def test_a_task_is_run_again_while_its_own_array_holds_the_key(store: Store, bench: Bench) -> None:
    """It would be refused in favour of its own array."""
    (first,) = await submit(store, new_job(unique=unique(), array=NewArray(ids.new_id(), 2), max_attempts=1))
    (task,) = await claim(store)
    await finish(store, task, FAILURE)
    await store.retry(task.id)
    assert (await store.job(task.id)).status is Status.PENDING
    assert await holder(bench) == f"{first} 1"


@pytest.mark.parametrize("until", ["started", "finished"])
async def test_a_key_whose_ttl_has_passed_is_not_taken_again_by_a_job_that_has_not_run(
    store: Store, bench: Bench, until: str
) -> None:
    (parent,) = await submit(store, new_job(queue="parents"))
    await submit(store, new_job(unique=unique(until=until), depends_on=after(parent)))
    await bench.client.delete(bench.keys.unique("k"))  # as if its time had come
    (got,) = await claim(store, queues=["parents"])
    await finish(store, got)
    assert await holder(bench) is None


async def test_a_key_until_finished_whose_ttl_has_passed_is_not_taken_again_after_an_attempt(
    store: Store, bench: Bench
) -> None:
    await submit(store, new_job(unique=unique()))
    (got,) = await claim(store)
    await bench.client.delete(bench.keys.unique("k"))  # as if its time had come
    await store.attempts.release([(got.id, got.fence)])
    assert await holder(bench) is None


async def test_an_array_goes_on_with_its_tasks_although_its_key_is_taken(store: Store, bench: Bench) -> None:
    """A task of the array that it follows runs again: its own task is wanted, and so is the array."""
    first = new_job(array=NewArray(ids.new_id(), 2), max_attempts=1)
    edge = Dependency(first.id, When.DONE, matching=True)
    second = new_job(array=NewArray(ids.new_id(), 2), queue="behind", depends_on=(edge,), unique=unique())
    await submit(store, first, second)
    for outcome in (SUCCESS, FAILURE):
        await finish(store, (await claim(store))[0], outcome)
    await finish(store, (await claim(store, queues=["behind"]))[0])
    assert (await store.job(second.id)).status is Status.FAILED
    (other,) = await submit(store, new_job(unique=unique(), delay_ms=60_000))
    await store.retry_tasks(first.id, [1])
    await finish(store, (await claim(store))[0])
    await finish(store, (await claim(store, queues=["behind"]))[0])
    assert (await store.job(second.id)).status is Status.DONE
    assert await holder(bench) == f"{other} 1"


@pytest.mark.damaged
async def test_a_job_whose_reference_to_its_key_is_damaged_still_ends(store: Store, bench: Bench) -> None:
    (job_id,) = await submit(store, new_job(unique=unique()))
    await bench.client.hset(bench.keys.job(job_id), "unique", "nonsense")
    await finish(store, (await claim(store))[0])
    assert await bench.client.hget(bench.keys.job(job_id), "status") == b"done"
