"""Faults that the model of the scheduler (tests/model) found in the store."""

import asyncio
import gc

import pytest

from tests.array_jobs import array_job, tasks_of
from tests.builders import WORKER, after, claim, finish, jobs, new_job, submit
from tests.bulk_actions import FAILURE, act
from tests.expiring import LATER, SOON, changed, ended
from tests.servers import Bench
from tests.unique_keys import unique
from workron import ids
from workron.errors import Conflict, StoreUnavailable, UnknownDependency
from workron.models import Beat, ClaimRequest, Dependency, Moment, QueueChange, Status, When
from workron.models.actions import Verb
from workron.runtime.async_tools import end
from workron.store import Store
from workron.store.policy import Policy


async def started(store: Store) -> list[str]:
    return [one.id for one in await claim(store, limit=10)]


async def test_jobs_of_one_submission_start_in_their_order_also_if_some_have_timers(store: Store) -> None:
    first, second, third = jobs(3)
    second.expires = LATER
    await submit(store, first, second, third)
    assert await started(store) == [first.id, second.id, third.id]


async def test_a_job_that_expired_and_is_retried_goes_behind_waiting_jobs(store: Store) -> None:
    (late,) = await submit(store, new_job(expires=SOON))
    (other,) = await submit(store, new_job())
    await ended(store, late)
    await store.retry(late)
    assert await started(store) == [other, late]


async def test_a_job_that_was_moved_away_and_back_goes_behind_waiting_jobs(store: Store) -> None:
    (moved,) = await submit(store, new_job())
    await submit(store, new_job(run_at_ms=2**50))  # its queue stays
    await act(store, Verb.MOVE, queue="default", status=Status.PENDING, to=("elsewhere", None))
    (other,) = await submit(store, new_job())
    await act(store, Verb.MOVE, queue="elsewhere", to=("default", None))
    assert await started(store) == [other, moved]


async def test_a_job_that_is_due_and_expired_at_once_ends(store: Store) -> None:
    (late,) = await submit(store, new_job(delay_ms=1, expires=Moment(after_ms=1)))
    assert (await changed(store, late, Status.CANCELLED)).status is Status.CANCELLED


async def test_a_repeated_submission_stores_nothing_although_its_first_job_was_deleted(store: Store) -> None:
    first, second = jobs(2)
    await submit(store, first, second)
    (one, _) = await claim(store, limit=2)
    await finish(store, one)
    await store.delete(first.id)
    await submit(store, first, second)
    assert (await store.job(second.id)).status is Status.RUNNING


async def test_a_job_may_replace_one_of_a_queue_above_its_limit(store: Store) -> None:
    await submit(store, new_job(unique=unique("replace")), *jobs(2))
    await store.change_queue("default", QueueChange(max_pending=1))
    (replacing,) = await submit(store, new_job(queue="elsewhere", unique=unique("replace")))
    assert (await store.job(replacing)).status is Status.PENDING


async def test_a_job_skipped_with_its_parent_in_one_submission_says_how_that_ended(store: Store) -> None:
    (done,) = await submit(store, new_job())
    await finish(store, (await claim(store))[0])
    parent, child = ids.new_ids(2)
    await submit(
        store, new_job(id=parent, depends_on=after(done, when=When.FAILED)), new_job(id=child, depends_on=after(parent))
    )
    assert (await store.job(child)).error == f"skipped: it depends on {parent}, which ended skipped"


async def test_replaced_jobs_are_cancelled_in_the_order_of_the_submission(bench: Bench) -> None:
    store, keys = bench.store(), [f"key-{n}" for n in range(9)]
    old = await submit(store, *(new_job(unique=unique("replace", key=key)) for key in keys))
    await submit(store, *(new_job(unique=unique("replace", key=key)) for key in keys))
    told = [
        fields[b"cancelled"] for _, fields in await bench.client.xrange(bench.keys.events) if b"cancelled" in fields
    ]
    assert b" ".join(told).decode().split() == old


async def test_a_repeated_submission_was_stored_again_when_its_first_job_was_deleted(
    store: Store,
) -> None:
    (holder,) = await submit(store, new_job(unique=unique(), queue="elsewhere"))
    first, second = jobs(2)
    second.unique = unique("return")
    assert await submit(store, first, second) == [first.id, holder]
    await finish(store, (await claim(store))[0])
    await store.delete(first.id)
    await submit(store, first, second)
    assert await store.jobs([first.id, second.id]) == [None, None]


async def test_arrays_of_one_submission_start_in_their_order(store: Store) -> None:
    arrays = [array_job(2) for _ in range(6)]
    await submit(store, *arrays)
    assert await started(store) == [task for job in arrays for task in tasks_of(job)][:10]


async def test_a_cancel_of_an_array_that_was_repeated_counted_from_the_repeat(store: Store) -> None:
    job = array_job(1)
    await submit(store, job)
    await claim(store)
    await store.cancel(job.id)
    before = await store.job(job.id)
    await asyncio.sleep(0.01)
    await store.cancel(job.id)
    assert (await store.job(job.id)).cancel_requested_at_ms == before.cancel_requested_at_ms


async def test_notifications_to_a_deleted_array_were_kept_for_ever(bench: Bench) -> None:
    store = bench.store()
    job = array_job(2, max_parallel=1)
    behind = array_job(2, depends_on=[Dependency(job.id, matching=True)])
    await submit(store, job, behind)
    await store.cancel(behind.id)
    await store.delete(behind.id)
    await store.cancel(job.id)
    assert await bench.client.exists(bench.keys.array(behind.id)) == 0


async def test_a_task_that_was_not_stopped_at_its_timeout_kept_its_lease_by_heartbeats(bench: Bench) -> None:
    store = bench.store(Policy(lease_ms=2000, stop_ms=1))
    job = array_job(1, timeout_ms=1)
    await submit(store, job)
    (got,) = await claim(store)
    await asyncio.sleep(0.02)
    beats = await store.attempts.heartbeat(WORKER, [(got.id, got.fence)])
    assert beats.attempts[got.fence] is Beat.LOST


async def test_a_worker_was_woken_for_jobs_of_a_queue_at_which_it_waits_no_more(bench: Bench) -> None:
    store = bench.store()
    for number, (worker, queue) in enumerate([("w1", "default"), ("w2", "default"), ("w1", "other")]):
        await store.attempts.claim(ClaimRequest(worker, [queue], 1, f"boot:{number}", park_ms=60_000))
        await asyncio.sleep(0.002)
    woken = []
    for queue in ("default", "other"):
        await submit(store, new_job(queue=queue))
        woken.append([await bench.client.llen(bench.keys.inbox(worker)) for worker in ("w1", "w2")])
    assert woken == [[0, 1], [1, 1]]


async def test_an_array_could_follow_one_that_was_not_stored(bench: Bench) -> None:
    store = bench.store()
    await submit(store, new_job(unique=unique("return")))
    followed = array_job(2, unique=unique("return"))
    behind = array_job(2, depends_on=[Dependency(followed.id, matching=True)])
    with pytest.raises(UnknownDependency):
        await submit(store, followed, behind)
    assert await bench.client.exists(bench.keys.array(followed.id)) == 0


async def test_what_a_task_raises_that_is_being_ended_was_complained_of() -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    async def fails() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            raise StoreUnavailable("away")

    failing = asyncio.create_task(fails())
    await asyncio.sleep(0)
    await end([failing])
    del failing
    gc.collect()
    assert complaints == []


async def test_an_array_was_deleted_while_one_of_its_tasks_waited_to_run_again(store: Store) -> None:
    job = array_job(3, max_parallel=1)
    behind = array_job(3, depends_on=[Dependency(job.id, matching=True)], queue="behind")
    await submit(store, job, behind)
    await finish(store, (await claim(store))[0])
    (got,) = await claim(store, queues=["behind"])
    await finish(store, got, FAILURE)
    await store.cancel(behind.id)
    await store.cancel(job.id)  # the other one is told by and by
    await store.scripts.array_tasks(behind.id, "retry", [0])  # and its caller is gone
    with pytest.raises(Conflict):
        await store.delete(behind.id)
