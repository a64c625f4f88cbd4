"""Stops of workflows that meet arrays, other stops, and jobs that are gone."""

import pytest

from tests.array_jobs import array_job, run_all
from tests.builders import after, claim, finish, jobs, new_job, submit
from tests.servers import Bench
from tests.workflows import FAILURE, start, statuses
from workron.models import Dependency, OnFailure, Result, When
from workron.store import Store


async def test_an_array_whose_tasks_run_goes_on_when_a_failure_stops_its_workflow(store: Store) -> None:
    """It would be cancelled, and its tasks would run on without it."""
    failing, array = new_job(max_attempts=1), array_job(2)
    await start(store, failing, array, on_failure=OnFailure.STOP)
    first, _ = await claim(store, limit=2)
    assert first.id == failing.id
    await finish(store, first, FAILURE)
    assert await statuses(store, failing, array) == ["failed", "blocked"]
    await run_all(store)
    assert (await store.job(array.id)).cancel_requested_at_ms is None


async def test_an_array_that_has_not_started_is_cancelled_at_once_with_its_workflow(store: Store) -> None:
    (parent,) = jobs(1)
    array = array_job(2, depends_on=after(parent.id))
    workflow = await start(store, parent, array)
    await store.cancel_workflow(workflow)
    assert await statuses(store, parent, array) == ["cancelled", "cancelled"]


async def test_a_cancel_reaches_what_a_stop_under_way_has_passed(store: Store) -> None:
    """A failure leaves alone what runs, a cancel does not."""
    members = jobs(400, max_attempts=1)
    workflow = await start(store, *members, on_failure=OnFailure.STOP)
    failing, running = await claim(store, limit=2)
    await store.attempts.finish([Result(failing.id, failing.fence, FAILURE)], worker="w1")  # the worker dies here
    assert set(await statuses(store, *members)) == {"failed", "running", "cancelled", "pending"}
    await store.cancel_workflow(workflow)
    assert (await store.job(running.id)).cancel_requested_at_ms is not None


async def test_a_cancel_of_a_workflow_tells_what_is_being_cancelled_nothing_new(store: Store, bench: Bench) -> None:
    job, array = new_job(), array_job(2)
    workflow = await start(store, job, array)
    assert len(await claim(store, limit=2)) == 2
    for one in (job, array):
        await store.cancel(one.id)
    await store.cancel_workflow(workflow)
    events = [fields for _, fields in await bench.client.xrange(bench.keys.events) if b"cancelling" in fields]
    told = b" ".join(fields[b"cancelling"] for fields in events).split()
    assert (told.count(job.id.encode()), told.count(array.id.encode())) == (1, 1)


async def test_a_cascade_goes_on_from_an_array_that_follows_to_the_one_that_follows_it(store: Store) -> None:
    first, second, third = array_job(1), array_job(1), array_job(1)
    for follower, followed in ((second, first), (third, second)):
        follower.depends_on = (Dependency(followed.id, When.FINISHED, matching=True),)
    await submit(store, first, second, third)
    await store.cancel(first.id, cascade=True)
    await store.maintenance.tidy()
    assert await statuses(store, first, second, third) == ["cancelled", "cancelled", "cancelled"]


@pytest.mark.damaged
async def test_a_stop_passes_over_a_job_that_is_gone_and_records_no_damage(store: Store, bench: Bench) -> None:
    gone, other = jobs(2)
    workflow = await start(store, gone, other)
    await bench.client.delete(bench.keys.job(gone.id))
    await store.cancel_workflow(workflow)
    assert await statuses(store, other) == ["cancelled"]
    assert not await bench.client.exists(bench.keys.quarantine)


@pytest.mark.damaged
@pytest.mark.parametrize("lost", ["stopped", "stop_at"])
async def test_a_stop_that_has_lost_its_mark_or_its_position_cancels_nothing_more(
    store: Store, bench: Bench, lost: str
) -> None:
    """It went over the rest as if a job had failed, or was noted as damage of a job that is not there."""
    members = jobs(400)
    workflow = await start(store, *members)
    await store.scripts.workflow_cancel(workflow)  # its caller dies here
    cancelled = (await statuses(store, *members)).count("cancelled")
    assert 0 < cancelled < 400
    await bench.client.hdel(bench.keys.workflow(workflow), lost)
    await store.maintenance.propagate()
    assert (await statuses(store, *members)).count("cancelled") == cancelled
    assert not await bench.client.exists(bench.keys.quarantine, bench.keys.propagate)
