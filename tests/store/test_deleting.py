"""Finished jobs are forgotten when somebody asks for it."""

import pytest

from tests.array_jobs import array_job, run_all
from tests.builders import after, claim, finish, jobs, new_job, submit
from tests.bulk_actions import statuses
from tests.servers import Bench
from workron import ids
from workron.errors import Conflict, NotFound
from workron.models import Dependency, NewArray, Outcome, Result, Status, When
from workron.store import Store


async def test_a_finished_job_is_deleted(store: Store, bench: Bench) -> None:
    (job_id,) = await submit(store, new_job())
    with pytest.raises(Conflict, match="pending"):
        await store.delete(job_id)
    (got,) = await claim(store)
    with pytest.raises(Conflict, match="running"):
        await store.delete(job_id)
    await finish(store, got)
    await store.delete(job_id)
    with pytest.raises(NotFound):
        await store.job(job_id)
    with pytest.raises(NotFound):
        await store.delete(job_id)
    assert [key async for key in bench.client.scan_iter(f"{bench.keys.prefix}*{job_id}*")] == []


async def test_a_job_of_a_workflow_that_goes_on_is_not_deleted(store: Store) -> None:
    workflow = await store.submit(jobs(2), as_workflow=True)
    (got,) = await claim(store)
    await finish(store, got)
    with pytest.raises(Conflict, match="its workflow"):
        await store.delete(got.id)
    await store.cancel(workflow.ids[1])
    for job_id in workflow.ids:
        await store.delete(job_id)
    with pytest.raises(NotFound):
        await store.workflow(workflow.workflow or "")


async def test_dependents_are_notified_before_a_job_is_deleted(store: Store) -> None:
    (parent,) = await submit(store, new_job())
    children = jobs(900, depends_on=after(parent))
    await store.submit(children)
    (got,) = await claim(store)
    await store.attempts.finish([Result(got.id, got.fence, Outcome(None, exit_code=0))], worker="w1")
    await store.delete(parent)
    assert set(await statuses(store, [job.id for job in children])) == {Status.PENDING}


async def test_an_array_is_deleted_with_its_tasks_but_no_task_alone(store: Store, bench: Bench) -> None:
    (job_id,) = await submit(store, new_job(array=NewArray(ids.new_id(), 230)))
    got = await claim(store, limit=100) + await claim(store, limit=100) + await claim(store, limit=100)
    for one in got:
        await finish(store, one)
    with pytest.raises(Conflict, match="its array"):
        await store.delete(got[0].id)
    await store.delete(job_id)
    assert [key async for key in bench.client.scan_iter(f"{bench.keys.job('')}*")] == []
    assert await store.queues() == []


async def test_a_job_is_deleted_although_dependents_of_another_are_still_to_be_notified(store: Store) -> None:
    parent, other = jobs(2)
    await submit(store, parent, other)
    await store.submit(jobs(900, depends_on=after(parent.id)))
    await store.cancel(other.id)
    (got,) = await claim(store)
    await store.attempts.finish([Result(got.id, got.fence, Outcome(None, exit_code=0))], worker="w1")  # its worker dies
    assert await store.scripts.job_delete(other.id) == [b"DELETED"]
    assert await store.scripts.job_delete(parent.id) == [b"MORE"]


@pytest.mark.damaged
async def test_the_deletion_of_a_job_whose_visit_of_its_dependents_was_lost_never_ended(
    store: Store, bench: Bench
) -> None:
    parent, child = jobs(2)
    child.depends_on = after(parent.id)
    await submit(store, parent, child)
    await store.cancel(parent.id)
    await bench.client.hset(bench.keys.job(parent.id), "edge_cursor", "0")
    assert (await store.scripts.job_delete(parent.id))[0] == b"NEEDED"


async def test_an_array_ran_again_while_it_was_being_deleted(store: Store) -> None:
    """Tasks that are gone would run a second time, or never."""
    array = array_job(230)
    await submit(store, array)
    ran = await run_all(store, 0)
    assert await store.scripts.job_delete(array.id) == [b"MORE"]
    assert await store.scripts.job_retry(array.id, "") == [b"UNKNOWN"]
    assert await store.scripts.job_retry(ran[0].id, "") == [b"UNKNOWN"]
    await store.delete(array.id)
    assert await store.queues() == []


async def test_an_array_is_not_deleted_while_one_that_follows_it_has_not_ended(store: Store) -> None:
    job = array_job(2)
    behind = array_job(2, depends_on=[Dependency(job.id, When.DONE, matching=True)], queue="behind")
    await submit(store, job, behind)
    assert len(await run_all(store)) == 2
    await store.maintenance.propagate()
    with pytest.raises(Conflict, match="follows it"):
        await store.delete(job.id)
    for one in await claim(store, queues=["behind"], limit=2):
        await finish(store, one)
    await store.delete(job.id)
    assert await store.jobs([job.id]) == [None]
    assert (await store.job(behind.id)).status is Status.DONE
