"""Concurrency keys cost nothing while nothing happens: jobs are let go by who frees a slot, not by looking again."""

import pytest

from tests.builders import claim, finish, new_job, submit
from tests.servers import Bench
from workron.models import Concurrency, Status
from workron.store import Store


async def pending(bench: Bench) -> int:
    return int(await bench.client.llen(bench.keys.pending("default", 5)))


async def test_keys_of_which_jobs_are_held_were_checked_again_every_minute(bench: Bench) -> None:
    store = bench.store()
    await submit(store, *(new_job(concurrency=Concurrency(f"k{at}", 1)) for at in range(20) for _ in range(2)))
    assert await pending(bench) == 20
    assert await bench.client.zcard(bench.keys.due) == 0
    await claim(store, limit=20)  # all that may start: the others are still held
    assert await bench.client.zcard(bench.keys.due) == 0
    assert await claim(store, limit=20) == []
    assert await store.maintenance.promote() is None


async def test_what_is_held_goes_when_a_slot_gets_free_though_nothing_is_due(store: Store) -> None:
    made = await submit(store, *(new_job(concurrency=Concurrency("k", 2)) for _ in range(9)))
    done = 0
    while got := await claim(store, limit=5):
        assert len(got) <= 2
        for one in got:
            await finish(store, one)
            done += 1
    assert done == len(made)


async def test_a_job_that_came_too_late_for_a_slot_goes_with_the_next_one(bench: Bench) -> None:
    store = bench.store()
    first, second = await submit(store, *(new_job(queue=q, concurrency=Concurrency("k", 1)) for q in ("a", "b")))
    (got,) = await claim(store, queues=["a"])
    assert await claim(store, queues=["b"]) == []
    assert await bench.client.zcard(bench.keys.due) == 0
    await finish(store, got)
    (got,) = await claim(store, queues=["b"])
    assert ((await store.job(first)).status, got.id) == (Status.DONE, second)


async def test_the_hash_of_a_key_was_written_whenever_it_was_checked(bench: Bench) -> None:
    store = bench.store()
    await submit(store, *(new_job(concurrency=Concurrency("k", 1)) for _ in range(3)))
    before = await bench.client.hgetall(bench.keys.concurrency("k"))
    assert b"rest" not in before
    await store.spot_check.look()
    assert await bench.client.hgetall(bench.keys.concurrency("k")) == before


@pytest.mark.damaged
async def test_a_slot_that_was_lost_is_found_without_an_operator(bench: Bench) -> None:
    store = bench.store()
    (gone,) = await submit(store, new_job())
    await finish(store, (await claim(store))[0])
    await submit(store, new_job(concurrency=Concurrency("k", 1)))
    await bench.client.zadd(bench.keys.slots("k"), {gone: 1})
    assert await claim(store) == []  # it is held now
    await submit(store, new_job(concurrency=Concurrency("other", 1)))
    assert len(await claim(store, limit=5)) == 1
    for _ in range(5):
        await store.spot_check.look()
    assert len(await claim(store, limit=5)) == 1
