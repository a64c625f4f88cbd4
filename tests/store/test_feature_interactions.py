"""What falls between arrays, workflows, unique keys, submissions in chunks, bulk actions and the sweep."""

from collections.abc import Sequence

import pytest

from tests.array_jobs import BAD, array_job, run_all, tasks_of
from tests.builders import SUCCESS, after, claim, finish, jobs, new_job, submit
from tests.bulk_actions import act, counts, order, work_off
from tests.servers import Bench
from tests.unique_keys import holder, unique
from tests.workflows import FAILURE, end, start, statuses
from workron import ids
from workron.errors import NotFound
from workron.models import Concurrency, NewJob, OnFailure, Result, When
from workron.models.actions import Verb
from workron.store import Store, encode
from workron.store.policy import Policy
from workron.store.submit import Submitter

# --- submissions in chunks --------------------------------------------------------------------------------------------


async def submit_unadmitted(
    store: Store, monkeypatch: pytest.MonkeyPatch, members: Sequence[NewJob], *, as_workflow: bool = False
) -> None:
    """Submit jobs one to a chunk; the submitter dies when they are visible, before any is admitted."""

    async def dies(self: Submitter, batch: str) -> None:
        pass

    with monkeypatch.context() as patched:
        patched.setattr(encode, "MAX_JOBS", 1)
        patched.setattr(Submitter, "admit_quietly", dies)
        await store.submit(members, as_workflow=as_workflow)


async def test_a_job_that_is_cancelled_before_its_admission_stays_cancelled(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = jobs(2)
    await submit_unadmitted(store, monkeypatch, [one, other])
    await store.cancel(other.id)
    await store.maintenance.tidy()
    assert await statuses(store, one, other) == ["pending", "cancelled"]


@pytest.mark.parametrize("parent_ends", [True, False])
async def test_an_admission_asks_whether_what_a_job_waits_for_has_ended(
    store: Store, monkeypatch: pytest.MonkeyPatch, parent_ends: bool
) -> None:
    (parent,) = jobs(1)
    first, second = ids.new_ids(2)
    one, child = new_job(id=first), new_job(id=second, depends_on=after(parent.id), concurrency=Concurrency("k", 1))
    await submit(store, parent)
    await submit_unadmitted(store, monkeypatch, [one, child])
    if parent_ends:
        await end(store)
    await store.maintenance.tidy()
    assert await statuses(store, one, child) == ["pending", "pending" if parent_ends else "blocked"]


async def test_an_array_that_was_cancelled_before_its_admission_did_not_run_when_retried(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, array = ids.new_ids(2)
    one, array = array_job(1, id=first), array_job(2, id=array, values=["a", "b"])
    await submit_unadmitted(store, monkeypatch, [one, array])
    await store.cancel(array.id)
    await store.maintenance.tidy()
    await run_all(store)
    assert await statuses(store, one, array) == ["done", "cancelled"]
    await store.retry(array.id)
    await store.maintenance.tidy()
    assert [ran.more["array"]["value"] for ran in await run_all(store)] == ["a", "b"]
    assert await statuses(store, array) == ["done"]


async def test_an_array_that_was_skipped_at_its_admission_did_not_run_when_its_parent_was_retried(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    (parent,) = jobs(1, max_attempts=1)
    first, second = ids.new_ids(2)
    one, array = new_job(id=first), array_job(2, id=second, depends_on=after(parent.id))
    await submit(store, parent)
    await submit_unadmitted(store, monkeypatch, [one, array])
    await end(store, FAILURE)
    await store.maintenance.tidy()
    assert await statuses(store, array) == ["skipped"]
    await store.retry(parent.id)
    for _ in range(4):
        await end(store)
        await store.maintenance.tidy()
    assert await statuses(store, parent, one, array) == ["done", "done", "done"]


async def test_a_final_job_that_was_cancelled_before_its_admission_never_ran_when_retried(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, last = jobs(2)
    last.final = True
    await submit_unadmitted(store, monkeypatch, [one, last], as_workflow=True)
    await store.cancel(last.id)
    await store.maintenance.tidy()
    await end(store)
    await store.retry(last.id)
    assert await end(store) == last.id
    assert await statuses(store, one, last) == ["done", "done"]


async def test_a_concurrency_key_counts_jobs_that_are_cancelled_before_their_admission(
    store: Store, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:

    one, two = jobs(2, concurrency=Concurrency("k", 1))
    await submit_unadmitted(store, monkeypatch, [one, two])
    await store.cancel(two.id)
    await store.maintenance.tidy()
    await end(store)
    assert not await bench.client.exists(bench.keys.prefix + "concurrency:k")


# --- workflows and arrays ---------------------------------------------------------------------------------------------


async def test_a_retry_of_tasks_left_their_workflow_stopped(store: Store) -> None:
    array, other = array_job(2), new_job(priority=1, max_attempts=1)
    workflow = await start(store, array, other, on_failure=OnFailure.STOP)
    for claimed in await claim(store, limit=2):
        await finish(store, claimed, BAD)
    assert (await store.workflow(workflow)).stopped is not None
    assert await statuses(store, array, other) == ["failed", "cancelled"]
    await store.retry_tasks(array.id, [0, 1])
    assert (await store.workflow(workflow)).stopped is None
    await store.retry(other.id)
    for claimed in await claim(store, limit=2):
        await finish(store, claimed, BAD)
    assert await statuses(store, array, other) == ["failed", "cancelled"]  # stopped again


async def test_a_retry_of_one_task_by_its_id_left_its_workflow_stopped(store: Store) -> None:
    array, other = array_job(1), new_job(priority=1, max_attempts=1)
    workflow = await start(store, array, other, on_failure=OnFailure.STOP)
    await end(store, BAD)
    await store.retry(tasks_of(array)[0])
    assert (await store.workflow(workflow)).stopped is None


async def test_a_final_job_ran_again_although_another_job_had_its_unique_key(store: Store, bench: Bench) -> None:
    (a, last) = jobs(2, max_attempts=1)
    last.final, last.unique = True, unique()
    await start(store, a, last)
    await end(store, FAILURE)
    await end(store)
    (other,) = await submit(store, new_job(unique=unique(), queue="else"))
    await store.retry(a.id)
    await end(store)
    assert await holder(bench) == f"{other} 1"
    assert await statuses(store, a, last, other) == ["done", "cancelled", "pending"]


# --- deletion ---------------------------------------------------------------------------------------------------------


async def half_deleted(bench: Bench, array: NewJob) -> None:
    """Delete the first tasks of an array, as who dies in between."""
    assert (await bench.store().scripts.job_delete(array.id))[0] == b"MORE"


async def test_a_task_of_an_array_that_is_being_deleted_was_retried(store: Store, bench: Bench) -> None:
    array = array_job(101)
    await submit(store, array)
    await store.maintenance.tidy()
    await run_all(store, 100)
    await half_deleted(bench, array)
    with pytest.raises(NotFound):
        await store.retry(tasks_of(array)[100])
    assert counts(await act(store, Verb.RETRY)) == (2, 0, 2)
    await store.delete(array.id)


async def test_done_tasks_that_were_swept_ran_again_when_their_array_was_retried(bench: Bench) -> None:
    store = bench.store(Policy(retention_done_ms=1, retention_failed_ms=3_600_000))
    array = array_job(2)
    await submit(store, array)
    await store.maintenance.tidy()
    await run_all(store, 1)
    await store.maintenance.sweep()
    await store.retry(array.id)
    await store.maintenance.tidy()
    assert [ran.more["array"]["index"] for ran in await run_all(store)] == [1]
    assert await statuses(store, array) == ["done"]


async def test_the_sweep_cut_off_a_cascade_that_was_under_way(bench: Bench) -> None:
    store = bench.store(Policy(retention_done_ms=1))
    (parent,) = jobs(1)
    children = jobs(300, depends_on=after(parent.id, when=When.FINISHED))
    await submit(store, parent)
    await submit(store, *children)
    await store.cancel(parent.id)
    await store.maintenance.propagate()
    assert (await store.scripts.job_cancel(parent.id, "", cascade=True))[1] == 1  # the canceller dies after a step
    await store.maintenance.sweep()
    await store.maintenance.propagate()
    assert set(await statuses(store, *children)) <= {"cancelled", "None"}  # some are swept by now


async def test_a_task_was_deleted_before_its_dependents_were_notified(store: Store, bench: Bench) -> None:
    array = array_job(1)
    await submit(store, array)
    (task,) = tasks_of(array)
    children = jobs(700, depends_on=after(task))
    await submit(store, *children)
    (running,) = await claim(store)
    await store.attempts.finish([Result(running.id, running.fence, SUCCESS)], worker="w1")
    assert (await store.job(task)).status == (await store.job(array.id)).status == "done"
    await store.delete(array.id)
    await store.maintenance.propagate()
    assert set(await statuses(store, *children)) == {"pending"}


# --- bulk actions -----------------------------------------------------------------------------------------------------


async def test_a_bulk_action_read_the_indexes_of_any_number_of_queues(store: Store, bench: Bench) -> None:
    members = [new_job(id=job_id, queue=f"q{n}") for n, job_id in enumerate(ids.new_ids(501))]
    await submit(store, *members)
    assert counts(await act(store, Verb.CANCEL)) == (501, 501, 0)
    action = await order(store, Verb.DELETE)
    assert await bench.client.lrange(f"{bench.keys.action(action)}:sources", 0, -1) == [b"jobs:cancelled"]
    assert counts(await work_off(store, action)) == (501, 501, 0)
