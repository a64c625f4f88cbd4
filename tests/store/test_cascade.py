"""Cancels that take along all that depends on the job."""

import asyncio

import pytest

from tests.builders import after, finish, jobs, new_job, submit
from tests.servers import Bench
from tests.workflows import claim_one, end, statuses
from workron import ids
from workron.errors import Conflict
from workron.models import (
    Cancelled,
    Dependency,
    NewArray,
    Reason,
    When,
)
from workron.store import Store


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


async def test_a_cascade_along_many_paths_cancels_all_and_ends(store: Store) -> None:
    chain = jobs(45)
    for at, job in enumerate(chain[1:], 1):  # each after the two before it
        job.depends_on = after(*(one.id for one in chain[max(0, at - 2) : at]), when=When.FINISHED)
    await submit(store, *chain)
    await asyncio.wait_for(store.cancel(chain[0].id, cascade=True), 10)
    assert set(await statuses(store, *chain)) == {"cancelled"}


async def test_a_cascade_goes_on_when_its_caller_has_died(bench: Bench) -> None:
    store = bench.store()
    (root,) = await submit(store, new_job())
    members = jobs(1000, depends_on=after(root))
    await submit(store, *members)
    await store.scripts.job_cancel(root, "", cascade=True)  # its caller dies here
    found = await statuses(store, *members)
    assert {"cancelled", "blocked"} == set(found)
    await store.maintenance.propagate()
    assert set(await statuses(store, *members)) == {"cancelled"}


async def test_a_cascade_ends_an_array_and_the_one_that_follows_it(store: Store) -> None:
    first, second = jobs(2)
    first.array, second.array = NewArray(ids.new_id(), 5), NewArray(ids.new_id(), 5)
    second.depends_on = (Dependency(first.id, When.FINISHED, matching=True),)
    await submit(store, first, second)
    await store.cancel(first.id, cascade=True)
    await store.maintenance.tidy()
    assert await statuses(store, first, second) == ["cancelled", "cancelled"]


async def test_a_second_cascade_within_a_millisecond_went_nowhere(bench: Bench) -> None:
    store = bench.store()
    parent = new_job()
    child = new_job(depends_on=after(parent.id))
    await submit(store, parent, child)
    await bench.client.hset(bench.keys.meta, "cascade", "4000000000000")  # as if the clock stood still
    for _ in range(2):
        await store.cancel(parent.id, cascade=True)
        await store.maintenance.propagate()
        assert set(await statuses(store, parent, child)) == {"cancelled"}
        await store.retry(parent.id)
        await store.retry(child.id)
        assert set(await statuses(store, parent, child)) == {"pending", "blocked"}


async def test_dependents_waited_forever_for_a_cascade_that_has_lost_its_token(bench: Bench) -> None:
    """The edges of its job were not visited before the cascade had ended, and it had no way to end."""
    store = bench.store()
    a, b = jobs(2)
    b.depends_on = after(a.id)
    await submit(store, a, b)
    got = await claim_one(store)
    await bench.client.hset(bench.keys.job(a.id), "cascade_at", "0")
    await finish(store, got)
    for _ in range(3):
        await store.scripts.maintain_propagate(100)
    assert await bench.client.hget(bench.keys.job(b.id), "status") == b"pending"


@pytest.mark.damaged
async def test_a_cascade_with_a_damaged_position_ends_and_is_no_damage_of_its_job(bench: Bench) -> None:
    store = bench.store()
    a, b = jobs(2)
    b.depends_on = after(a.id)
    await submit(store, a, b)
    got = await claim_one(store)
    await bench.client.hset(bench.keys.job(a.id), mapping={"cascade": "1", "cascade_at": "x"})
    await finish(store, got)
    for _ in range(3):
        await store.scripts.maintain_propagate(100)
    assert await statuses(store, b) == ["pending"]
    assert not await bench.client.exists(bench.keys.quarantine)


async def test_a_cascade_visits_each_edge_once(store: Store) -> None:
    """Each job also depends on the root; the root's last children are the first of the chain."""
    root, *chain = jobs(20)
    for job, behind in zip(chain, [*chain[1:], root], strict=True):
        job.depends_on = after(root.id, *({behind.id} - {root.id}), when=When.FINISHED)
    await submit(store, root, *chain)
    [_, propagating, _] = await store.scripts.job_cancel(root.id, "", cascade=True)
    assert propagating == 0
    assert set(await statuses(store, root, *chain)) == {"cancelled"}


async def test_a_cascade_passes_over_a_dependent_that_was_deleted_and_records_no_damage(
    store: Store, bench: Bench
) -> None:
    root, gone, other = jobs(3)
    gone.depends_on = other.depends_on = after(root.id)
    await submit(store, root, gone, other)
    await store.cancel(gone.id)
    await store.delete(gone.id)
    await store.cancel(root.id, cascade=True)
    assert await statuses(store, other) == ["cancelled"]
    assert not await bench.client.exists(bench.keys.quarantine)


async def test_a_second_cascade_goes_as_far_as_the_first(store: Store) -> None:
    chain = jobs(3)
    for job, parent in zip(chain[1:], chain, strict=False):
        job.depends_on = after(parent.id)
    await submit(store, *chain)
    for _ in range(2):
        await store.cancel(chain[0].id, cascade=True)
        assert await statuses(store, *chain) == ["cancelled", "cancelled", "cancelled"]
        for job in chain:
            await store.retry(job.id)
        assert await statuses(store, *chain) == ["pending", "blocked", "blocked"]
