"""Unique keys of jobs that are submitted together."""

import asyncio
import math
from contextlib import nullcontext
from typing import Any

import pytest

from tests.builders import after, claim, jobs, new_job, submit
from tests.servers import Bench
from tests.unique_keys import holder, unique
from workron.errors import UniqueConflict, UnknownDependency
from workron.models import Concurrency, Idempotency, JobFilter, Status
from workron.store import Store
from workron.store.encode import MAX_EDGES


async def test_in_bulk_holders_stand_in_the_places_of_what_was_not_stored(store: Store) -> None:
    (first,) = await submit(store, new_job(unique=unique()))
    new = jobs(5)
    for place, key in ((0, "k"), (2, "b"), (4, "b")):
        new[place].unique = unique("return", key)
    idempotency = Idempotency("s", "i", "f")
    submitted = await store.submit(new, idempotency=idempotency)
    assert submitted.ids == (first, new[1].id, new[2].id, new[3].id, new[2].id)
    assert not submitted.returned
    assert (await store.submit(new)).ids == submitted.ids  # the reply was lost
    repeated = await store.submit(jobs(5), idempotency=idempotency)
    assert repeated.ids == submitted.ids
    assert repeated.repeated
    assert len((await store.list_jobs(JobFilter())).jobs) == 4


async def test_in_bulk_a_refused_one_refuses_all(store: Store) -> None:
    (first,) = await submit(store, new_job(unique=unique()))
    new = jobs(3)
    new[2].unique = unique()
    with pytest.raises(UniqueConflict, match=first):
        await store.submit(new)
    new = jobs(2, unique=unique(key="twice"))
    with pytest.raises(UniqueConflict, match=new[0].id):
        await store.submit(new)
    assert len((await store.list_jobs(JobFilter())).jobs) == 1


async def test_in_bulk_the_last_of_the_jobs_that_replace_each_other_is_left(store: Store) -> None:
    new = jobs(3, unique=unique("replace"))
    await store.submit(new)
    assert [job.status for job in await store.jobs([job.id for job in new]) if job] == [
        *(Status.CANCELLED, Status.CANCELLED, Status.PENDING)
    ]


@pytest.mark.parametrize(("most", "fields"), [(400, {}), (100, {"concurrency": Concurrency("c", 1)})])
async def test_a_submission_of_one_call_replaces_a_holder_and_a_larger_one_is_refused(
    store: Store, most: int, fields: dict[str, Any]
) -> None:
    """docs/jobs.md names these numbers."""
    (first,) = await submit(store, new_job(unique=unique()))
    for number in (most + 1, most):
        assert (await store.job(first)).status is Status.PENDING
        new = jobs(number, **fields)
        new[0].unique = unique("replace")
        with pytest.raises(UniqueConflict, match=first) if number > most else nullcontext():
            await store.submit(new)
    assert (await store.job(first)).status is Status.CANCELLED


async def test_a_job_that_was_skipped_from_the_beginning_was_cancelled_by_the_one_that_replaced_it(
    store: Store,
) -> None:
    (parent,) = await submit(store, new_job())
    await store.cancel(parent)
    new = jobs(2, unique=unique("replace"))
    new[0].depends_on = after(parent)
    await store.submit(new)
    skipped = await store.job(new[0].id)
    assert (skipped.status, skipped.caused_by) == (Status.SKIPPED, parent)
    assert (await store.job(new[1].id)).status is Status.PENDING


async def test_when_all_are_held_nothing_is_stored(store: Store) -> None:
    (first,) = await submit(store, new_job(unique=unique()))
    submitted = await store.submit(jobs(2, unique=unique("return")), idempotency=Idempotency("s", "i", "f"))
    assert submitted.ids == (first, first)
    assert submitted.returned
    again = await store.submit(jobs(2, unique=unique("return")), idempotency=Idempotency("s", "i", "f"))
    assert again.ids == (first, first)
    single = await store.submit([new_job(unique=unique("return"))], idempotency=Idempotency("s", "j", "f"))
    await store.cancel(first)
    again = await store.submit([new_job(unique=unique("return"))], idempotency=Idempotency("s", "j", "f"))
    assert single.ids == again.ids == (first,)
    assert again.repeated


async def test_in_a_workflow_nothing_is_returned(store: Store) -> None:
    (first,) = await submit(store, new_job(unique=unique()))
    with pytest.raises(UniqueConflict, match=first):
        await store.submit(jobs(2, unique=unique("return")), as_workflow=True)
    new = jobs(1000)
    new[900].unique = unique("return")
    with pytest.raises(UniqueConflict, match=first):
        await store.submit(new, as_workflow=True)
    assert len((await store.list_jobs(JobFilter())).jobs) == 1


@pytest.mark.large
async def test_large_submissions_have_keys_too(store: Store, bench: Bench) -> None:
    (first,) = await submit(store, new_job(unique=unique()))
    new = jobs(1000)
    for place, job in enumerate(new[1:], 1):
        job.unique = unique("return", f"key {place % 990}")
    new[0].unique = unique("return")
    submitted = await store.submit(new, idempotency=Idempotency("s", "i", "f"))
    expected = [first, *(job.id for job in new[1:990]), new[990].id, *(job.id for job in new[1:10])]
    assert list(submitted.ids) == expected
    repeated = await store.submit(jobs(1000), idempotency=Idempotency("s", "i", "f"))
    assert repeated.ids == submitted.ids
    assert await holder(bench, "key 5") == f"{new[5].id} 1"
    assert len(await claim(store, limit=100)) == 100


async def test_the_returned_job_was_forgotten_when_a_second_reaper_came_after_the_admission(store: Store) -> None:
    (first,) = await submit(store, new_job(unique=unique()))
    new = jobs(500)
    new[400].unique = unique("return")
    submitted = await store.submit(new, idempotency=Idempotency("s", "i", "f"))
    assert submitted.ids[400] == first
    await store.submitter.tidy(new[0].id, math.inf)  # it saw the batch before it was admitted
    repeated = await store.submit(jobs(500), idempotency=Idempotency("s", "i", "f"))
    assert repeated.ids == submitted.ids


async def test_a_large_submission_that_is_refused_gives_its_keys_back(store: Store, bench: Bench) -> None:
    (first,) = await submit(store, new_job(unique=unique()))
    for conflict in ("reject", "replace"):
        new = jobs(1000)
        for place, job in enumerate(new[:900]):
            job.unique = unique("return", f"key {place % 300}")
        new[950].unique = unique(conflict)
        with pytest.raises(UniqueConflict, match=first):
            await store.submit(new)
        assert [name async for name in bench.client.scan_iter(f"{bench.keys.unique('key')}*")] == []
        assert (await store.job(first)).status is Status.PENDING


async def test_a_job_of_a_submission_that_is_not_open_yet_holds_its_key(store: Store) -> None:
    stage = store.scripts.submission_stage
    new = jobs(1000)
    new[0].unique = unique()
    staged = asyncio.Event()
    go_on = asyncio.Event()

    async def slowly(**fields: Any) -> Any:
        reply = await stage(**fields)
        staged.set()
        await go_on.wait()
        return reply

    store.scripts.submission_stage = slowly  # type: ignore[method-assign]
    task = asyncio.create_task(store.submit(new))
    await staged.wait()
    for conflict in ("return", "replace"):
        with pytest.raises(UniqueConflict, match=new[0].id):
            await submit(store, new_job(unique=unique(conflict)))
    go_on.set()
    await task
    assert (await store.submit([new_job(unique=unique("return"))])).ids == (new[0].id,)


@pytest.mark.parametrize("edges", [0, MAX_EDGES + 1])
async def test_a_dependent_of_a_job_that_was_not_stored_waited_for_ever(store: Store, edges: int) -> None:
    await submit(store, new_job(unique=unique()))
    parents = jobs(edges)
    new = [*parents, new_job(unique=unique("return"), depends_on=after(*(job.id for job in parents)))]
    with pytest.raises(UnknownDependency, match=new[-1].id):
        await store.submit([*new, new_job(depends_on=after(new[-1].id))])
    assert len((await store.list_jobs(JobFilter())).jobs) == 1
