"""Chapter 2: jobs that depend on each other, workflows and arrays."""

from tests.array_jobs import array_job
from tests.builders import after, claim, finish, finish_all, new_job, submit
from workron import ids
from workron.models import Outcome, Reason, Status, When
from workron.store import Store

SUCCESS = Outcome(None, exit_code=0)
FAILURE = Outcome(Reason.EXIT_CODE, exit_code=1)


async def test_a_job_is_blocked_until_all_jobs_it_depends_on_are_done(store: Store) -> None:
    one, two = await submit(store, new_job(), new_job())
    (child,) = await submit(store, new_job(depends_on=after(one, two)))
    first, second = await claim(store, limit=3)
    await finish(store, first)
    assert (await store.job(child)).status is Status.BLOCKED
    await finish(store, second)
    assert (await store.job(child)).status is Status.PENDING


async def test_a_failure_skips_all_that_needed_a_success(store: Store) -> None:
    parent = new_job(max_attempts=1)
    child = new_job(depends_on=after(parent.id))
    cleanup = new_job(depends_on=after(parent.id, when=When.FINISHED))
    await submit(store, parent, child, cleanup)
    (claimed,) = await claim(store)
    await finish(store, claimed, FAILURE)
    skipped = await store.job(child.id)
    assert (skipped.status, skipped.reason, skipped.caused_by) == (Status.SKIPPED, Reason.UPSTREAM, parent.id)
    assert (await store.job(cleanup.id)).status is Status.PENDING


async def test_a_job_reads_the_results_of_the_jobs_it_depends_on(store: Store) -> None:
    (parent,) = await submit(store, new_job(name="count"))
    (child,) = await submit(store, new_job(depends_on=after(parent)))
    (claimed,) = await claim(store)
    await finish(store, claimed, Outcome(None, exit_code=0, result="42"))
    (read,) = await store.attempts.parents(child)
    assert (read.status, read.name, read.result) == (Status.DONE, "count", 42)


async def test_a_workflow_ends_when_all_its_jobs_have_ended(store: Store) -> None:
    build, check = (new_job(id=job_id) for job_id in ids.new_ids(2))
    check.depends_on = after(build.id)
    submitted = await store.submit([build, check], as_workflow=True)
    assert submitted.workflow is not None
    for has_ended in (False, True):
        (claimed,) = await claim(store)
        await finish(store, claimed)
        assert (await store.workflow(submitted.workflow)).finished is has_ended


async def test_a_cancelled_workflow_starts_no_more_jobs(store: Store) -> None:
    build, check = (new_job(id=job_id) for job_id in ids.new_ids(2))
    check.depends_on = after(build.id)
    submitted = await store.submit([build, check], as_workflow=True)
    assert submitted.workflow is not None
    await store.cancel_workflow(submitted.workflow)
    assert {(await store.job(one.id)).status for one in (build, check)} <= {Status.CANCELLED, Status.SKIPPED}
    assert await claim(store) == []


async def test_an_array_is_one_submission_with_many_tasks(store: Store) -> None:
    array = array_job(3, values=["red", "green", "blue"])
    await submit(store, array)
    claims = await claim(store, limit=3)
    assert [(one.more["array"]["index"], one.more["array"]["value"]) for one in claims] == [
        (0, "red"),
        (1, "green"),
        (2, "blue"),
    ]
    await finish_all(store, claims, [SUCCESS] * 3)
    assert (await store.job(array.id)).status is Status.DONE
