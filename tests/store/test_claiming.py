"""What a claim takes out of the lists, and what it leaves there."""

import pytest

from tests.array_jobs import array_job
from tests.builders import claim, jobs, new_job, submit
from tests.servers import Bench
from workron import ids
from workron.models import ClaimRequest, Concurrency, JobFilter, Moment, Status
from workron.store import Store

LARGE = "#" * 600_000
"""A command of which two are too much for one claim."""


async def claims_until_empty(store: Store, limit: int = 150) -> list[list[str]]:
    """The ids that one claim after the other gets."""
    got: list[list[str]] = []
    while claims := await claim(store, limit=limit):
        got.append([one.id for one in claims])
    return got


# --- ids that stand in a list by mistake ------------------------------------------------------------------------------


async def test_an_id_in_the_list_of_another_queue_starts_nothing(bench: Bench) -> None:
    """Where a job was moved from a long list, its id is still there."""
    store = bench.store()
    (job_id,) = await submit(store, new_job(queue="other"))
    await bench.client.rpush(bench.keys.pending("default", 5), job_id)
    await bench.client.pexpire(bench.keys.pending("default", 5), 60_000)
    assert await claim(store) == []
    assert (await store.job(job_id)).status is Status.PENDING
    assert [one.id for one in await claim(store, queues=["other"])] == [job_id]


async def test_an_id_in_the_list_of_another_priority_starts_nothing(bench: Bench) -> None:
    store = bench.store()
    (first, second) = await submit(store, new_job(priority=5), new_job(priority=1))
    await bench.client.lpush(bench.keys.pending("default", 9), second)
    assert [one.id for one in await claim(store, limit=2)] == [first, second], "by its own priority it is the last one"


@pytest.mark.parametrize("status", ["scheduled", "cancelled", "running"])
async def test_an_id_of_a_job_that_is_not_pending_starts_nothing(bench: Bench, status: str) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job(delay_ms=60_000 if status == "scheduled" else None))
    if status == "cancelled":
        await store.cancel(job_id)
    if status == "running":
        await claim(store, worker="w2")
    before = await store.job(job_id)
    await bench.client.rpush(bench.keys.pending("default", 5), job_id)
    assert await claim(store) == []
    assert await store.job(job_id) == before


@pytest.mark.parametrize("status", ["pending", "cancelled", "running", "gone"])
async def test_an_entry_of_due_that_names_no_scheduled_job_starts_nothing_and_goes(bench: Bench, status: str) -> None:
    """A running job would be run twice."""
    store = bench.store()
    (job_id,) = await submit(store, new_job(queue="other"))
    if status == "cancelled":
        await store.cancel(job_id)
    if status == "running":
        await claim(store, worker="w2", queues=["other"])
    before = await store.job(job_id)
    entry = ids.new_id() if status == "gone" else job_id
    await bench.client.zadd(bench.keys.due, {entry: 1})
    assert await claim(store) == []
    assert await store.job(job_id) == before
    assert await bench.client.zrange(bench.keys.due, 0, -1) == []


async def test_a_claim_looks_at_few_jobs_for_which_no_slot_is_free(bench: Bench) -> None:
    """Each is as much work as many ids of jobs that have gone: a thousand of them took longer than a call may."""
    store, pending = bench.store(), bench.keys.pending("default", 5)
    await submit(store, *jobs(100, concurrency=Concurrency("k", 1)))
    (running,) = await claim(store)
    _, *held = [one.id for one in (await store.list_jobs(JobFilter(), limit=100)).jobs if one.id != running.id]
    await bench.client.rpush(pending, *held)
    looks = 0
    while left := await bench.client.llen(pending):
        claimed = await store.attempts.claim(ClaimRequest("w1", ("default",), 1, f"once-{looks}", park_ms=60_000))
        assert claimed.claims == ()
        rest = await bench.client.llen(pending)
        assert left - rest <= 50
        assert (claimed.more, claimed.parked) == (rest > 0, rest == 0), "it waits for nothing while some are left"
        looks += 1
    assert looks >= 2


async def test_jobs_with_a_deadline_come_together_as_others_do(store: Store) -> None:
    """Each that started cost as much as one that may not start, and a claim looked into no other list after fifty."""
    late = Moment(after_ms=60_000)
    await submit(store, *jobs(60, deadline=late, priority=6), new_job(deadline=late))
    assert len(await claim(store, limit=70)) == 61


async def test_a_job_with_a_deadline_is_not_taken_for_a_damaged_task(bench: Bench) -> None:
    store = bench.store()
    await submit(store, new_job(deadline=Moment(after_ms=60_000)))
    assert len(await claim(store)) == 1
    assert not await bench.client.exists(bench.keys.quarantine)


# --- jobs that are too large to come together -------------------------------------------------------------------------


async def test_jobs_that_are_too_large_for_one_reply_come_one_after_the_other(store: Store) -> None:
    """150 large ones could never be claimed: each try took longer than a call may, and leased them anew."""
    ids = await submit(store, *jobs(3, command=LARGE))
    assert await claims_until_empty(store) == [[one] for one in ids]


@pytest.mark.parametrize("field", ["argv", "env"])
async def test_whatever_makes_jobs_large_counts(store: Store, field: str) -> None:
    large = {"argv": ("true", LARGE)} if field == "argv" else {"env": {"A": LARGE}}
    ids = await submit(store, *jobs(2, **large))
    assert await claims_until_empty(store) == [[one] for one in ids]


async def test_small_jobs_come_together_up_to_a_large_one_and_behind_it(store: Store) -> None:
    one, two, three, four = await submit(
        store, new_job(), new_job(command="#" * 1_040_000), new_job(command=LARGE), new_job()
    )
    assert await claims_until_empty(store) == [[one, two], [three, four]]


async def test_what_a_claim_leaves_for_its_size_wakes_the_next_worker(bench: Bench) -> None:
    store = bench.store()
    await submit(store, *jobs(2, command=LARGE))
    pending = bench.keys.pending("default", 5)
    await bench.client.rename(pending, "away")
    assert (await store.attempts.claim(ClaimRequest("w2", ("default",), 5, "boot:1", park_ms=60_000))).parked
    await bench.client.rename("away", pending)
    assert len(await claim(store, limit=5)) == 1
    assert await bench.client.lrange(bench.keys.inbox("w2"), 0, -1) == [b"w2"]


async def test_tasks_count_with_what_they_have_from_their_array(store: Store) -> None:
    await submit(store, array_job(3, command=LARGE))
    await store.maintenance.tidy()
    assert [len(one) for one in await claims_until_empty(store)] == [1, 1, 1]


async def test_a_large_job_whose_turn_it_is_in_place_of_another_stays_in_front(bench: Bench) -> None:
    store = bench.store()
    key = Concurrency("k", 2)
    first = new_job(command=LARGE)
    large, small = new_job(command=LARGE, concurrency=key), new_job(concurrency=key)
    await submit(store, first, large, small)
    pending = bench.keys.pending("default", 5)
    await bench.client.lrem(pending, 1, large.id)
    await bench.client.rpush(pending, large.id)  # behind the other one, whose turn comes later
    assert [one.id for one in await claim(store, limit=5)] == [first.id]
    left = [one.decode() for one in await bench.client.lrange(pending, 0, -1)]
    assert sorted(left) == sorted([small.id, large.id]), "each stands there once"
    assert await claims_until_empty(store) == [[large.id, small.id]]


async def test_a_repeat_of_a_claim_that_stopped_for_its_size_brings_the_same(store: Store) -> None:
    await submit(store, *jobs(2, command=LARGE))
    request = ClaimRequest("w1", ("default",), 5, "boot:1")
    first = (await store.attempts.claim(request)).claims
    assert len(first) == 1
    assert (await store.attempts.claim(request)).claims == first
