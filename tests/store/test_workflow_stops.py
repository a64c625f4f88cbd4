"""Workflows: they are stopped, cancelled, and given more jobs; their final job runs when all others have ended."""

import asyncio
from typing import Any

import pytest
from builders import after, claim, finish, jobs, new_job, submit
from servers import Bench

from workron import ids
from workron.errors import Conflict, IdempotencyConflict, NotFound, QueueFull
from workron.models import (
    Cancelled,
    Claim,
    Idempotency,
    NewArray,
    NewJob,
    OnFailure,
    Outcome,
    Reason,
    Status,
    Stopped,
    Submitted,
    When,
)
from workron.store import Store

FAILURE = Outcome(Reason.EXIT_CODE, exit_code=1)
STOP = OnFailure.STOP


async def start(store: Store, *members: NewJob, on_failure: OnFailure = OnFailure.CONTINUE) -> str:
    """Submit a workflow; returns its id."""
    submitted = await store.submit(members, as_workflow=True, on_failure=on_failure)
    assert submitted.workflow
    return submitted.workflow


async def statuses(store: Store, *members: NewJob | str) -> list[str]:
    found = await store.jobs([one if isinstance(one, str) else one.id for one in members])
    return [str(job and job.status) for job in found]


async def claim_one(store: Store) -> Claim:
    (claimed,) = await claim(store, wait=True)
    return claimed


async def end(store: Store, outcome: Outcome | None = None) -> str:
    claimed = await claim_one(store)
    await (finish(store, claimed) if outcome is None else finish(store, claimed, outcome))
    return claimed.id


# --- the final job ----------------------------------------------------------------------------------------------------


async def test_the_final_job_starts_when_all_others_have_ended_however(store: Store) -> None:
    a, b, c, last = jobs(4, max_attempts=1)
    b.depends_on, last.final = after(a.id), True
    await start(store, a, b, c, last)
    assert await statuses(store, last) == ["blocked"]
    await end(store, FAILURE)
    assert await statuses(store, a, b, c, last) == ["failed", "skipped", "pending", "blocked"]
    await end(store)
    assert await statuses(store, last) == ["pending"]
    assert await end(store) == last.id
    assert (await store.workflow((await store.job(a.id)).workflow or "")).finished


async def test_a_final_job_alone_starts_at_once(store: Store) -> None:
    last = new_job(final=True)
    await start(store, last)
    assert await statuses(store, last) == ["pending"]


async def test_the_final_job_waits_for_jobs_that_were_added(store: Store) -> None:
    a, last = jobs(2)
    last.final = True
    workflow = await start(store, a, last)
    (late,) = jobs(1)
    await store.add(workflow, [late])
    assert await end(store) == a.id
    assert await statuses(store, late, last) == ["pending", "blocked"]
    assert await end(store) == late.id
    assert await statuses(store, last) == ["pending"]


async def test_a_retry_has_the_final_job_wait_and_run_again(store: Store) -> None:
    a, last = jobs(2, max_attempts=1)
    last.final = True
    await start(store, a, last)
    await end(store, FAILURE)
    assert await end(store) == last.id
    await store.retry(a.id)
    job = await store.job(last.id)
    assert (job.status, job.run) == (Status.BLOCKED, 2)
    assert await end(store) == a.id
    assert await end(store) == last.id


async def test_a_retry_while_the_final_job_runs_has_it_run_once_more(store: Store) -> None:
    a, last = jobs(2, max_attempts=1)
    last.final = True
    await start(store, a, last)
    await end(store, FAILURE)
    final = await claim_one(store)
    await store.retry(a.id)
    again = await claim_one(store)
    await finish(store, final)
    assert await statuses(store, last) == ["blocked"]
    await finish(store, again)
    assert await statuses(store, last) == ["pending"]


async def test_a_final_job_that_was_cancelled_does_not_come_back_by_itself(store: Store) -> None:
    a, last = jobs(2, max_attempts=1)
    last.final = True
    await start(store, a, last)
    await store.cancel(last.id)
    await end(store, FAILURE)
    await store.retry(a.id)
    await end(store)
    assert await statuses(store, last) == ["cancelled"]
    await store.retry(last.id)
    assert await statuses(store, last) == ["pending"]


async def test_the_final_job_of_a_large_workflow_waits_for_all_of_it(store: Store) -> None:
    members = jobs(1000)
    members[0].final = True
    await start(store, *members)
    ended: list[str] = []
    while len(ended) < 999:
        assert await statuses(store, members[0]) == ["blocked"]
        for one in await claim(store, limit=100):
            await finish(store, one)
            ended.append(one.id)
    assert await statuses(store, members[0]) == ["pending"]


# --- on_failure: stop -------------------------------------------------------------------------------------------------


async def test_the_first_failure_cancels_all_that_has_not_started(store: Store) -> None:
    a, b, c, d, last = jobs(5, max_attempts=1)
    d.depends_on, last.final = after(c.id), True
    workflow = await start(store, a, b, c, d, last, on_failure=STOP)
    failing, running = await claim(store, limit=2)
    await finish(store, failing, FAILURE)
    assert await statuses(store, a, b, c, d, last) == ["failed", "running", "cancelled", "cancelled", "blocked"]
    job = await store.job(c.id)
    assert (job.reason, job.caused_by) == (Reason.CANCELLED, a.id)
    found = await store.workflow(workflow)
    assert (found.stopped, found.stopped_by, found.on_failure) == (Stopped.FAILED, a.id, STOP)
    await finish(store, running)
    assert await statuses(store, b, last) == ["done", "pending"]


async def test_a_failed_attempt_that_is_tried_again_stops_nothing(store: Store) -> None:
    a, b = jobs(2, max_attempts=2)
    await start(store, a, b, on_failure=STOP)
    await end(store, FAILURE)
    assert await statuses(store, a, b) == ["scheduled", "pending"]


async def test_a_workflow_that_continues_is_not_stopped_by_a_failure(store: Store) -> None:
    a, b = jobs(2, max_attempts=1)
    await start(store, a, b)
    await end(store, FAILURE)
    assert await statuses(store, a, b) == ["failed", "pending"]


async def test_a_retry_resumes_a_workflow_and_the_next_failure_stops_it_again(store: Store) -> None:
    a, b = jobs(2, max_attempts=1)
    workflow = await start(store, a, b, on_failure=STOP)
    await end(store, FAILURE)
    await store.retry(b.id)
    await store.retry(a.id)
    assert (await store.workflow(workflow)).stopped is None
    assert (await store.job(b.id)).caused_by is None
    running = {one.id: one for one in await claim(store, limit=1)}
    await finish(store, *running.values(), FAILURE)
    assert sorted(await statuses(store, a, b)) == ["cancelled", "failed"]


async def test_a_large_workflow_is_stopped_in_steps_that_anybody_goes_on_with(bench: Bench) -> None:
    store = bench.store()
    members = jobs(1500, max_attempts=1)
    workflow = await start(store, *members, on_failure=STOP)
    (failing,) = await claim(store)
    await store.attempts.finish([_result(failing)], worker="w1")  # who finished it dies here
    counts = (await store.workflow(workflow)).counts
    assert 0 < counts[Status.CANCELLED] < 1000
    await store.upkeep.propagate()
    counts = (await store.workflow(workflow)).counts
    assert (counts[Status.CANCELLED], counts[Status.FAILED]) == (1499, 1)


def _result(claimed: Claim) -> Any:
    from workron.models import Result

    return Result(claimed.id, claimed.fence, FAILURE)


# --- cancel -----------------------------------------------------------------------------------------------------------


async def test_cancelling_a_workflow_ends_all_but_the_final_job(store: Store) -> None:
    a, b, c, last = jobs(4)
    c.depends_on, last.final = after(b.id, when=When.FINISHED), True
    workflow = await start(store, a, b, c, last)
    running = await claim_one(store)
    await store.cancel_workflow(workflow)
    job = await store.job(a.id)
    assert job.cancel_requested_at_ms is not None
    assert await statuses(store, a, b, c, last) == ["running", "cancelled", "cancelled", "blocked"]
    await store.cancel_workflow(workflow)  # a repeat changes nothing
    await finish(store, running)
    assert await statuses(store, a, last) == ["cancelled", "pending"]
    assert (await store.workflow(workflow)).stopped is Stopped.CANCELLED


async def test_a_workflow_that_has_ended_or_never_was_cannot_be_cancelled(store: Store) -> None:
    workflow = await start(store, new_job())
    await end(store)
    with pytest.raises(Conflict, match="already ended"):
        await store.cancel_workflow(workflow)
    with pytest.raises(NotFound):
        await store.cancel_workflow(ids.new_id())


async def test_jobs_that_are_not_admitted_yet_are_cancelled_with_their_workflow(bench: Bench) -> None:
    store = bench.store()
    members = jobs(2000)
    submitting = asyncio.create_task(store.submit(members, as_workflow=True))
    workflow = ids.ids_from(members[-1].id, 2)[1]
    while True:
        try:
            await store.cancel_workflow(workflow)
            break
        except NotFound:
            await asyncio.sleep(0)
    await submitting
    await store.upkeep.propagate()
    assert set(await statuses(store, *members)) == {"cancelled"}


async def test_an_array_of_a_cancelled_workflow_ends(store: Store) -> None:
    (job,) = jobs(1)
    job.array = NewArray(ids.new_id(), 50)
    workflow = await start(store, job)
    await store.cancel_workflow(workflow)
    await store._arrays.work_on_quietly(job.id)
    assert await statuses(store, job) == ["cancelled"]


# --- adding jobs ------------------------------------------------------------------------------------------------------


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
    await store.limit_queue("default", 500)
    with pytest.raises(QueueFull):
        await add(store, workflow, *jobs(1000))
    assert (await store.workflow(workflow)).size == 1
    await store.limit_queue("default", None)
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


# --- cascade ----------------------------------------------------------------------------------------------------------


async def test_a_cancel_with_cascade_ends_all_that_depends_on_the_job(store: Store) -> None:
    a, b, c, other = jobs(4)
    b.depends_on, c.depends_on = after(a.id), after(b.id, when=When.FINISHED)
    await submit(store, a, b, c, other)
    assert await store.cancel(a.id, cascade=True) is Cancelled.CANCELLED
    assert await statuses(store, a, b, c, other) == ["cancelled", "cancelled", "cancelled", "pending"]
    job = await store.job(c.id)
    assert (job.reason, job.caused_by) == (Reason.CANCELLED, b.id)
    assert b.id in (job.error or "")


async def test_without_cascade_dependents_go_their_own_way(store: Store) -> None:
    a, b, c = jobs(3)
    b.depends_on, c.depends_on = after(a.id), after(a.id, when=When.FINISHED)
    await submit(store, a, b, c)
    await store.cancel(a.id)
    assert await statuses(store, a, b, c) == ["cancelled", "skipped", "pending"]


async def test_a_cascade_of_a_running_job_ends_its_dependents_at_once(store: Store) -> None:
    a, b = jobs(2)
    b.depends_on = after(a.id, when=When.FINISHED)
    await submit(store, a, b)
    running = await claim_one(store)
    assert await store.cancel(a.id, cascade=True) is Cancelled.CANCELLING
    assert await statuses(store, a, b) == ["running", "cancelled"]
    await finish(store, running)
    assert await statuses(store, a, b) == ["cancelled", "cancelled"]


async def test_a_cascade_reaches_running_dependents_of_jobs_that_have_ended(store: Store) -> None:
    a, b, c = jobs(3)
    b.depends_on, c.depends_on = after(a.id), after(b.id, when=When.FINISHED)
    await submit(store, a, b, c)
    await store.cancel(a.id)
    running = await claim_one(store)
    assert running.id == c.id
    assert await store.cancel(a.id, cascade=True) is Cancelled.CANCELLED
    assert (await store.job(c.id)).cancel_requested_at_ms is not None


async def test_what_was_cancelled_with_another_job_can_be_retried(store: Store) -> None:
    a, b = jobs(2)
    b.depends_on = after(a.id)
    await submit(store, a, b)
    await store.cancel(a.id, cascade=True)
    with pytest.raises(Conflict, match="retry that one"):
        await store.retry(b.id)
    await store.retry(a.id)
    await store.retry(b.id)
    assert await statuses(store, a, b) == ["pending", "blocked"]
    assert (await store.job(b.id)).caused_by is None
    await end(store)
    assert await statuses(store, b) == ["pending"]


async def test_a_cascade_through_many_diamonds_walks_every_edge_once(store: Store) -> None:
    layers = [jobs(2) for _ in range(30)]
    for above, below in zip(layers, layers[1:], strict=False):
        for job in below:
            job.depends_on = after(*(one.id for one in above))
    everything = [job for layer in layers for job in layer]
    (root,) = jobs(1)
    for job in layers[0]:
        job.depends_on = after(root.id)
    await submit(store, root, *everything)
    await asyncio.wait_for(store.cancel(root.id, cascade=True), 20)
    assert set(await statuses(store, root, *everything)) == {"cancelled"}


async def test_a_cascade_goes_on_when_its_caller_has_died(bench: Bench) -> None:
    store = bench.store()
    (root,) = await submit(store, new_job())
    members = jobs(1000, depends_on=after(root))
    await submit(store, *members)
    await store._scripts.cancel(root, "", cascade=True)  # its caller dies here
    found = await statuses(store, *members)
    assert {"cancelled", "blocked"} == set(found)
    await store.upkeep.propagate()
    assert set(await statuses(store, *members)) == {"cancelled"}


async def test_a_cascade_ends_an_array_and_the_one_that_follows_it(store: Store) -> None:
    from workron.models import Dependency

    first, second = jobs(2)
    first.array, second.array = NewArray(ids.new_id(), 5), NewArray(ids.new_id(), 5)
    second.depends_on = (Dependency(first.id, When.FINISHED, matching=True),)
    await submit(store, first, second)
    await store.cancel(first.id, cascade=True)
    for job in (first, second, first, second):
        await store._arrays.work_on_quietly(job.id)
    assert await statuses(store, first, second) == ["cancelled", "cancelled"]
