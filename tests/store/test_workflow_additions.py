"""Jobs that are added to a workflow that has begun."""

import asyncio
from typing import Any

import pytest

from tests.builders import after, claim, finish, jobs, new_job
from tests.queue_limits import limit_queue
from tests.workflows import claim_one, end, start, statuses
from workron.errors import Conflict, IdempotencyConflict, QueueFull
from workron.models import (
    Idempotency,
    NewJob,
    Status,
    Submitted,
)
from workron.store import Store


def key(name: str, body: str = "body") -> Idempotency:
    return Idempotency("default", name, body)


async def add(store: Store, workflow: str, *members: NewJob, **more: Any) -> Submitted:
    return await store.add(workflow, members, **more)


async def test_added_jobs_belong_to_the_workflow_and_may_depend_on_its_jobs(store: Store) -> None:
    a = new_job()
    workflow = await start(store, a)
    b, c = jobs(2)
    b.depends_on = after(a.id)
    await add(store, workflow, b, c)
    found = await store.workflow(workflow)
    assert found.size == 3
    assert [job.id for job in await store.workflow_jobs(workflow)] == [a.id, b.id, c.id]
    assert await statuses(store, b, c) == ["blocked", "pending"]


async def test_a_finished_workflow_takes_no_jobs(store: Store) -> None:
    workflow = await start(store, new_job())
    await end(store)
    late = new_job()
    with pytest.raises(Conflict, match="all its jobs have ended"):
        await add(store, workflow, late)
    large = jobs(1000)
    with pytest.raises(Conflict, match="all its jobs have ended"):
        await add(store, workflow, *large)
    assert set(await statuses(store, late, *large)) == {"None"}


async def test_a_stopped_workflow_takes_no_jobs_until_it_goes_on(store: Store) -> None:
    a, b = jobs(2)
    workflow = await start(store, a, b)
    running = await claim_one(store)
    await store.cancel_workflow(workflow)
    with pytest.raises(Conflict, match="it was stopped"):
        await add(store, workflow, new_job())
    await finish(store, running)
    await store.retry(b.id)
    await add(store, workflow, new_job())


async def test_a_workflow_whose_final_job_has_begun_takes_no_jobs(store: Store) -> None:
    a, last = jobs(2)
    last.final = True
    workflow = await start(store, a, last)
    await end(store)
    with pytest.raises(Conflict, match="final job"):
        await add(store, workflow, new_job())


async def test_an_addition_is_repeated_by_its_key_also_after_the_end(store: Store) -> None:
    workflow = await start(store, new_job())
    late = new_job()
    await add(store, workflow, late, idempotency=key("k"))
    while await claim(store, limit=0) or [one for one in await claim(store) if await finish(store, one)]:
        pass
    again = await add(store, workflow, new_job(), idempotency=key("k"))
    assert (again.ids, again.repeated, again.workflow) == ((late.id,), True, workflow)
    with pytest.raises(IdempotencyConflict):
        await add(store, workflow, new_job(), idempotency=key("k", "other"))


async def test_an_addition_whose_reply_was_lost_is_not_made_twice(store: Store) -> None:
    workflow = await start(store, new_job())
    late = new_job()
    await add(store, workflow, late)
    await add(store, workflow, late)
    assert (await store.workflow(workflow)).size == 2


async def test_a_large_addition_is_all_there_or_not_at_all(store: Store) -> None:
    workflow = await start(store, new_job())
    await limit_queue(store, "default", 500)
    with pytest.raises(QueueFull):
        await add(store, workflow, *jobs(1000))
    assert (await store.workflow(workflow)).size == 1
    await limit_queue(store, "default", None)
    await add(store, workflow, *jobs(1000))
    found = await store.workflow(workflow)
    assert (found.size, found.counts[Status.PENDING]) == (1001, 1001)


async def test_a_workflow_that_ends_and_an_addition_do_not_cross_unseen(store: Store) -> None:
    for _ in range(20):
        a, last = jobs(2)
        last.final = True
        workflow = await start(store, a, last)
        running = await claim_one(store)
        late = new_job()
        added, _ = await asyncio.gather(add(store, workflow, late), finish(store, running), return_exceptions=True)
        if isinstance(added, Conflict):
            assert await statuses(store, late, last) == ["None", "pending"]
        else:
            assert await statuses(store, late, last) == ["pending", "blocked"]
            assert await end(store) == late.id
        assert await end(store) == last.id


async def test_names_are_found_from_the_newest_on(store: Store) -> None:
    a, b = jobs(2, name="same")
    workflow = await start(store, a, b, new_job(name="other"))
    assert await store.named_jobs(workflow, {"same", "none"}) == {"same": b.id}
