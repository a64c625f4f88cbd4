"""Finished jobs are forgotten when somebody asks for it."""

import pytest

from tests.builders import after, claim, finish, jobs, new_job, submit
from tests.bulk_actions import statuses
from tests.servers import Bench
from workron import ids
from workron.errors import Conflict, NotFound
from workron.models import NewArray, Outcome, Result, Status
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


async def test_dependents_are_told_before_a_job_is_deleted(store: Store) -> None:
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
