"""The admission of a large submission: what is decided for each job, and what is counted."""

import time

import pytest

from tests.array_jobs import array_job
from tests.builders import after, claim, jobs, submit
from tests.servers import Bench
from tests.unique_keys import unique
from tests.workflows import statuses
from workron.models import NewJob, Status
from workron.store import Store

HOUR_MS = 3_600_000


async def stored_by_a_dying_submitter(store: Store, many: list[NewJob], monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Open a large submission and leave its admission to the reaper; returns its workflow."""

    async def dies(batch: str) -> None:
        pass

    with monkeypatch.context() as patch:
        patch.setattr(store.submitter, "admit_quietly", dies)
        return (await store.submit(many, as_workflow=True)).workflow


async def test_a_job_with_a_unique_key_started_before_the_job_that_it_depends_on(store: Store) -> None:
    parent, *others = many = jobs(500)
    others[-1].depends_on, others[-1].unique = after(parent.id), unique()
    others[-1].queue = "dependents"
    await store.submit(many)
    assert await statuses(store, others[-1]) == ["blocked"]
    assert await claim(store, queues=["dependents"]) == []


async def test_the_tasks_of_an_array_in_a_large_submission_keep_their_room_once(store: Store, bench: Bench) -> None:
    """They were counted twice, and the queue was full too early, for ever."""
    parent, *others = jobs(500)
    array = array_job(30, queue="arrays", depends_on=after(parent.id))
    await store.submit([parent, *others, array])
    assert await bench.client.hget(bench.keys.queue("arrays"), "reserved") == b"30"


@pytest.mark.damaged
async def test_a_staged_job_that_is_gone_kept_the_others_from_their_admission(
    store: Store, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = jobs(500)
    await stored_by_a_dying_submitter(store, many, monkeypatch)
    await bench.client.delete(bench.keys.job(many[7].id))
    await store.maintenance.tidy()
    assert await bench.client.llen(bench.keys.pending("default", 5)) == 499
    assert not await bench.client.exists(bench.keys.batches)


async def test_a_large_submission_of_which_all_jobs_were_returned_leaves_nothing_to_admit(
    store: Store, bench: Bench
) -> None:
    def many() -> list[NewJob]:
        made = jobs(500, queue="held", delay_ms=HOUR_MS)
        for number, job in enumerate(made):
            job.unique = unique("return", f"k{number}")
        return made

    first = (await store.submit(many())).ids
    assert (await store.submit(many())).ids == first
    assert not await bench.client.exists(bench.keys.batches)
    assert (await store.queue("held")).counts[Status.SCHEDULED] == 500


async def test_jobs_that_are_admitted_after_their_workflow_was_cancelled_are_cancelled_too(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = jobs(500)
    workflow = await stored_by_a_dying_submitter(store, many, monkeypatch)
    assert workflow is not None
    await store.cancel_workflow(workflow)
    await store.maintenance.tidy()
    await store.maintenance.propagate()
    assert set(await statuses(store, *many)) == {"cancelled"}


@pytest.mark.parametrize("size", [3, 500])
async def test_each_job_has_the_time_of_its_own_and_the_others_have_none(store: Store, size: int) -> None:
    at, delayed, plain, *_ = many = jobs(size)
    at.run_at_ms, delayed.delay_ms = int(time.time() * 1000) + HOUR_MS, HOUR_MS
    await submit(store, *many)
    found = [await store.job(job.id) for job in (at, delayed, plain)]
    assert [job.status for job in found] == [Status.SCHEDULED, Status.SCHEDULED, Status.PENDING]
    assert [job.run_at_ms for job in found] == [at.run_at_ms, found[1].created_at_ms + HOUR_MS, None]
