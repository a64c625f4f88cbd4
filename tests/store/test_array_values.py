"""Values of arrays come once their submission has been judged, stay with the job, and leave nothing without it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.array_jobs import array_job, run_all
from tests.builders import after, claim, finish, jobs, new_job, submit
from tests.schedules import fire, make_due, put
from tests.servers import Bench
from workron import ids
from workron.errors import QueueFull, StoreFull, StoreUnavailable
from workron.models import NewJob, QueueChange, Status
from workron.store import Store
from workron.store.array_values import _UNTIL_STORED_MS

VALUES = ["a", "b", "c"]


def at_the_end_of_many(**fields: Any) -> list[NewJob]:
    many = jobs(800)
    return [*many, array_job(3, values=VALUES, id=ids.ids_from(many[0].id, 801)[-1], **fields)]


async def ttl_of_values(bench: Bench, job_id: str) -> int:
    """-1: they are kept for good, -2: there are none."""
    return int(await bench.client.pttl(bench.keys.array_values(job_id)))


def interfering(store: Store, name: str, work: Callable[[], Awaitable[Any]], *, behind: bool = False) -> list[str]:
    """Have something happen before (or behind) the first call of a script; returns the names of all that are made."""
    scripts, made = store.scripts, list[str]()
    run = scripts._run

    async def interfered(script: str, *args: Any, **options: Any) -> Any:
        made.append(script)
        first = script == name and made.count(name) == 1
        if first and not behind:
            await work()
        reply = await run(script, *args, **options)
        if first and behind:
            await work()
        return reply

    scripts._run = interfered  # type: ignore[method-assign]
    return made


async def test_values_of_a_submission_that_was_refused_were_sent_and_kept(bench: Bench) -> None:
    store = bench.store()
    await store.change_queue("closed", QueueChange(max_pending=3))
    made = interfering(store, "job_submit", _nothing)
    with pytest.raises(QueueFull):
        await submit(store, array_job(3, values=VALUES, queue="closed"))
    assert made == ["job_submit"]


async def _nothing() -> None:
    pass


async def test_values_are_sent_between_two_calls_and_then_kept_for_good(bench: Bench) -> None:
    store = bench.store()
    made = interfering(store, "array_values", _nothing)
    job = array_job(3, values=VALUES)
    await submit(store, job)
    assert made[:3] == ["job_submit", "array_values", "job_submit"]
    assert await ttl_of_values(bench, job.id) == -1
    assert [one.more["array"]["value"] for one in await run_all(store)] == VALUES


async def test_values_are_kept_with_every_way_to_be_stored(bench: Bench) -> None:
    store = bench.store()
    blocker = new_job()
    workflow = (await store.submit([blocker], as_workflow=True)).workflow
    assert workflow
    in_one = array_job(3, values=VALUES, depends_on=after(blocker.id))
    await submit(store, in_one)
    with_others = [array_job(3, values=VALUES, id=one) for one in ids.new_ids(5)]
    await submit(store, *with_others)
    staged = at_the_end_of_many(depends_on=after(blocker.id))
    await submit(store, *staged)
    as_workflow = at_the_end_of_many()
    await store.submit(as_workflow, as_workflow=True)
    added = array_job(3, values=VALUES)
    await store.add(workflow, [added])
    added_to_many = at_the_end_of_many()
    await store.add(workflow, added_to_many)
    arrays = [in_one, *with_others, staged[-1], as_workflow[-1], added, added_to_many[-1]]
    assert [await ttl_of_values(bench, one.id) for one in arrays] == [-1] * len(arrays)


async def test_values_are_kept_with_the_run_of_a_schedule(bench: Bench) -> None:
    store = bench.store()
    await put(store, work={"command": "true", "array": {"values": VALUES}})
    await make_due(bench)
    assert await fire(store) == 1
    ran = await run_all(store)
    assert [one.more["array"]["value"] for one in ran] == VALUES
    assert await ttl_of_values(bench, ran[0].more["array"]["id"]) == -1


async def test_values_of_a_staged_array_that_was_skipped_before_it_was_admitted_ran_out(bench: Bench) -> None:
    store = bench.store()
    parent = new_job(max_attempts=1)
    await submit(store, parent)
    many = at_the_end_of_many(depends_on=after(parent.id))

    async def parent_is_cancelled() -> None:
        await store.cancel(parent.id)

    interfering(store, "submission_open", parent_is_cancelled)
    await submit(store, *many)
    assert (await store.job(many[-1].id)).status is Status.SKIPPED
    assert await ttl_of_values(bench, many[-1].id) == -1


def dying(store: Store, *, behind: str = "", at: str = "") -> None:
    """Have the submitter die behind a call, or before it: it makes no other one."""
    run, dead = store.scripts._run, False

    async def make(script: str, *args: Any, **options: Any) -> Any:
        nonlocal dead
        dead = dead or script == at
        if dead:
            raise StoreUnavailable("it died")
        dead = script == behind
        return await run(script, *args, **options)

    store.scripts._run = make  # type: ignore[method-assign]


async def test_values_whose_submitter_died_run_out(bench: Bench) -> None:
    store = bench.store()
    job = array_job(3, values=VALUES)
    dying(store, behind="array_values")
    with pytest.raises(StoreUnavailable):
        await submit(store, job)
    assert 0 < await ttl_of_values(bench, job.id) <= _UNTIL_STORED_MS


async def test_values_that_ran_out_before_their_job_was_stored_are_sent_again(bench: Bench) -> None:
    store = bench.store()
    job = array_job(3, values=VALUES)

    async def they_run_out() -> None:
        await bench.client.delete(bench.keys.array_values(job.id))

    made = interfering(store, "array_values", they_run_out, behind=True)
    await submit(store, job)
    assert made[:5] == ["job_submit", "array_values", "job_submit", "array_values", "job_submit"]
    assert [one.more["array"]["value"] for one in await run_all(store)] == VALUES


@pytest.mark.parametrize("large", [False, True])
async def test_values_leave_nothing_where_others_took_the_room_meanwhile(bench: Bench, large: bool) -> None:
    store = bench.store()
    many = at_the_end_of_many(queue="narrow") if large else [array_job(3, values=VALUES, queue="narrow")]

    async def room_is_taken() -> None:
        await store.change_queue("narrow", QueueChange(max_pending=0))
        await bench.client.hset(bench.keys.meta, "full", 1)

    interfering(store, "array_values", room_is_taken, behind=True)
    with pytest.raises((QueueFull, StoreFull)):
        await submit(store, *many)
    assert await ttl_of_values(bench, many[-1].id) == -2
    await bench.client.hdel(bench.keys.meta, "full")


async def test_values_leave_nothing_where_memory_ran_out_as_they_came(bench: Bench) -> None:
    store = bench.store()
    job = array_job(3, values=["v" * 200_000] * 3)

    async def memory_is_full() -> None:
        await bench.client.hset(bench.keys.meta, "full", 1)

    made = interfering(store, "array_values", memory_is_full, behind=True)
    with pytest.raises(StoreFull):
        await submit(store, job)
    assert made == ["job_submit", "array_values", "array_values", "array_discard"]
    assert await ttl_of_values(bench, job.id) == -2
    await bench.client.hdel(bench.keys.meta, "full")


async def test_values_leave_nothing_where_their_client_has_gone(bench: Bench) -> None:
    store = bench.store()
    job = array_job(3, values=["v" * 200_000] * 3)
    sent = asyncio.Event()

    async def hangs() -> None:
        sent.set()
        await asyncio.Event().wait()

    interfering(store, "array_values", hangs, behind=True)
    submitting = asyncio.create_task(submit(store, job))
    await sent.wait()
    submitting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await submitting
    assert await ttl_of_values(bench, job.id) == -2


async def test_values_of_a_batch_that_was_given_up_go_with_it(bench: Bench) -> None:
    store = bench.store()
    many = at_the_end_of_many()
    dying(store, at="submission_open")
    with pytest.raises(StoreUnavailable):
        await submit(store, *many)
    assert await ttl_of_values(bench, many[-1].id) == -1
    await bench.client.zincrby(bench.keys.batches, -120_000, many[0].id)
    await bench.store().maintenance.tidy()
    assert await ttl_of_values(bench, many[-1].id) == -2


async def test_values_of_a_twin_that_came_first_are_not_discarded(bench: Bench) -> None:
    """A submission that is repeated while it is under way has the same ids: who comes last discards nothing."""
    one, other = bench.store(), bench.store()
    job = array_job(3, values=VALUES)

    async def the_other_is_faster() -> None:
        await submit(other, job)

    interfering(one, "array_values", the_other_is_faster, behind=True)
    await submit(one, job)
    assert await ttl_of_values(bench, job.id) == -1
    [first, *_] = await claim(one, limit=1)
    assert first.more["array"]["value"] == "a"
    await finish(one, first)
