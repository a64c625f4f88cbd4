"""Workflows are stopped and cancelled; their final job runs when all others have ended."""

import asyncio

import pytest

from tests.builders import SUCCESS, after, claim, finish, jobs, new_job
from tests.servers import Bench
from tests.workflows import FAILURE, claim_one, end, start, statuses
from workron import ids
from workron.errors import Conflict, NotFound
from workron.models import (
    NewArray,
    OnFailure,
    Reason,
    Result,
    Status,
    Stopped,
    When,
)
from workron.store import Store

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


async def test_a_retry_while_the_final_job_runs_has_it_run_again(store: Store) -> None:
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
        claims = await claim(store, limit=100)
        await store.attempts.finish([Result(one.id, one.fence, SUCCESS) for one in claims], worker="w1")
        ended += [one.id for one in claims]
    assert await statuses(store, members[0]) == ["pending"]


# --- on_failure: stop -------------------------------------------------------------------------------------------------


async def test_the_first_failure_cancels_all_that_has_not_started(store: Store) -> None:
    a, b, c, d, last = jobs(5, max_attempts=1)
    d.depends_on, last.final = after(c.id), True
    workflow = await start(store, a, b, c, d, last, on_failure=OnFailure.STOP)
    failing, running = await claim(store, limit=2)
    await finish(store, failing, FAILURE)
    assert await statuses(store, a, b, c, d, last) == ["failed", "running", "cancelled", "cancelled", "blocked"]
    job = await store.job(c.id)
    assert (job.reason, job.caused_by) == (Reason.CANCELLED, a.id)
    found = await store.workflow(workflow)
    assert (found.stopped, found.stopped_by, found.on_failure) == (Stopped.FAILED, a.id, OnFailure.STOP)
    await finish(store, running)
    assert await statuses(store, b, last) == ["done", "pending"]


async def test_a_second_failure_was_named_as_the_one_that_stopped_the_workflow(store: Store) -> None:
    members = jobs(2, max_attempts=1)
    workflow = await start(store, *members, on_failure=OnFailure.STOP)
    for running in await claim(store, limit=2):
        await finish(store, running, FAILURE)
    assert (await store.workflow(workflow)).stopped_by == members[0].id


async def test_a_stopped_workflow_took_jobs_again_when_another_attempt_failed(store: Store) -> None:
    a, b = jobs(2)
    a.max_attempts = 1
    workflow = await start(store, a, b, on_failure=OnFailure.STOP)
    for running in await claim(store, limit=2):
        await finish(store, running, FAILURE)
    assert await statuses(store, a, b) == ["failed", "scheduled"]
    assert (await store.workflow(workflow)).stopped is Stopped.FAILED


async def test_a_failed_attempt_that_is_tried_again_stops_nothing(store: Store) -> None:
    a, b = jobs(2, max_attempts=2)
    await start(store, a, b, on_failure=OnFailure.STOP)
    await end(store, FAILURE)
    assert await statuses(store, a, b) == ["scheduled", "pending"]


async def test_a_workflow_that_continues_is_not_stopped_by_a_failure(store: Store) -> None:
    a, b = jobs(2, max_attempts=1)
    await start(store, a, b)
    await end(store, FAILURE)
    assert await statuses(store, a, b) == ["failed", "pending"]


async def test_a_retry_resumes_a_workflow_and_the_next_failure_stops_it_again(store: Store) -> None:
    a, b = jobs(2, max_attempts=1)
    workflow = await start(store, a, b, on_failure=OnFailure.STOP)
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
    workflow = await start(store, *members, on_failure=OnFailure.STOP)
    (failing,) = await claim(store)
    await store.attempts.finish([Result(failing.id, failing.fence, FAILURE)], worker="w1")  # who finished it dies here
    counts = (await store.workflow(workflow)).counts
    assert 0 < counts[Status.CANCELLED] < 1000
    await store.maintenance.propagate()
    counts = (await store.workflow(workflow)).counts
    assert (counts[Status.CANCELLED], counts[Status.FAILED]) == (1499, 1)


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
    await store.maintenance.propagate()
    assert set(await statuses(store, *members)) == {"cancelled"}


async def test_an_array_of_a_cancelled_workflow_ends(store: Store) -> None:
    (job,) = jobs(1)
    job.array = NewArray(ids.new_id(), 50)
    workflow = await start(store, job)
    await store.cancel_workflow(workflow)
    await store.maintenance.tidy()
    assert await statuses(store, job) == ["cancelled"]


@pytest.mark.damaged
async def test_a_stop_that_has_lost_its_cause_quarantined_all_jobs_and_cancelled_none(bench: Bench) -> None:
    store = bench.store()
    members = jobs(3)
    workflow = await start(store, *members, on_failure=OnFailure.STOP)
    await bench.client.hset(bench.keys.workflow(workflow), mapping={"stopped": "failed", "stop_at": "0"})
    await bench.client.rpush(bench.keys.propagate, f"workflow:{workflow}")
    await store.maintenance.propagate()
    assert await statuses(store, *members) == ["cancelled"] * 3
    assert (await store.job(members[0].id)).error == "cancelled: a job has failed, which stops the workflow"
    assert not await bench.client.exists(bench.keys.quarantine)
