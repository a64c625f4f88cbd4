"""What a parent's retry, and a cancel that goes on from it, leave alone: each was a check without a test."""

import pytest

from tests.array_jobs import array_job, run_all
from tests.builders import after, claim, finish, jobs, new_job, submit
from tests.servers import Bench
from tests.workflows import FAILURE, statuses
from workron.errors import Conflict
from workron.models import NewJob, When
from workron.store import Store


async def failed_parent_of(store: Store, child: NewJob, when: When = When.FINISHED) -> str:
    """Submit a child that starts when its parent has failed; so it has. Returns the parent's id."""
    (parent,) = await submit(store, new_job(queue="parents", max_attempts=1))
    child.depends_on = after(parent, when=when)
    await submit(store, child)
    (got,) = await claim(store, queues=["parents"])
    await finish(store, got, FAILURE)
    return parent


async def test_a_job_that_has_started_does_not_wait_for_its_parents_retry_when_it_is_retried_itself(
    store: Store,
) -> None:
    child = new_job(max_attempts=1)
    parent = await failed_parent_of(store, child)
    (running,) = await claim(store)
    await store.retry(parent)
    await finish(store, running, FAILURE)
    await store.retry(child.id)
    assert await statuses(store, parent, child) == ["pending", "pending"]


async def test_a_job_that_was_cancelled_does_not_wait_for_its_parents_retry_when_it_is_retried_itself(
    store: Store,
) -> None:
    child = new_job()
    parent = await failed_parent_of(store, child)
    await store.cancel(child.id)
    await store.retry(parent)
    await store.retry(child.id)
    assert await statuses(store, parent, child) == ["pending", "pending"]


async def test_the_retry_of_a_cancelled_job_names_the_parent_that_has_failed_meanwhile(store: Store) -> None:
    (parent,) = await submit(store, new_job(max_attempts=1))
    (child,) = await submit(store, new_job(depends_on=after(parent)))
    await store.cancel(child)
    await finish(store, (await claim(store))[0], FAILURE)
    with pytest.raises(Conflict, match=parent):
        await store.retry(child)


async def test_an_array_whose_tasks_run_is_not_skipped_when_its_retried_parent_ends_otherwise(store: Store) -> None:
    array = array_job(2)
    parent = await failed_parent_of(store, array, When.FAILED)
    await store.retry(parent)
    (got,) = await claim(store, queues=["parents"])
    await finish(store, got)
    assert await statuses(store, parent, array) == ["done", "blocked"]
    assert len(await run_all(store)) == 2
    assert await statuses(store, array) == ["done"]


async def test_a_cascade_that_begins_while_dependents_are_being_skipped_cancels_the_rest(bench: Bench) -> None:
    store = bench.store()
    (root,) = await submit(store, new_job())
    members = jobs(500, depends_on=after(root))
    await submit(store, *members)
    await store.scripts.job_cancel(root, "", cascade=False)  # its caller dies here
    skipped = (await statuses(store, *members)).count("skipped")
    assert 0 < skipped < 500
    await store.cancel(root, cascade=True)
    await store.maintenance.propagate()
    assert await statuses(store, *members) == ["skipped"] * skipped + ["cancelled"] * (500 - skipped)
