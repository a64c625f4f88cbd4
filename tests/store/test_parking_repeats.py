"""Two sequences of requests of one worker, and requests that are made again otherwise than before."""

import pytest

from tests.builders import new_job, submit
from tests.parked import ask, unheard
from tests.servers import Bench
from workron.store import Store


async def test_a_second_sequence_of_requests_does_not_disturb_the_first(store: Store) -> None:
    await submit(store, new_job(), new_job())
    one = await ask(store, request_id="boot:1")
    other = await ask(store, request_id="boot~2:1")
    assert one.claims[0].id != other.claims[0].id
    assert (await ask(store, request_id="boot:1")).claims == one.claims
    assert (await ask(store, request_id="boot~2:1")).claims == other.claims


async def test_what_a_second_sequence_of_requests_does_leaves_the_first_one_parked(bench: Bench) -> None:
    """Its worker was not woken any more."""
    store = bench.store()
    await submit(store, new_job())
    assert len((await ask(store, request_id="boot~2:1", park_ms=0)).claims) == 1
    assert (await ask(store)).parked
    assert (await ask(store, request_id="boot~2:2", park_ms=0)).claims == ()
    await ask(store, request_id="boot~2:2", park_ms=0, limit=0)
    await ask(store, request_id="boot~2:1", park_ms=0, limit=0)
    await submit(store, new_job())
    assert await unheard(bench, "w1") == [1]


async def test_a_worker_that_asks_again_without_waiting_is_parked_no_longer(bench: Bench) -> None:
    """It was woken instead of one that waits."""
    store = bench.store()
    await ask(store, "w1", park_ms=50_000)
    await ask(store, "w2", park_ms=60_000)
    assert not (await ask(store, "w1", park_ms=0)).parked
    await submit(store, new_job())
    assert await unheard(bench, "w1", "w2") == [0, 1]


@pytest.mark.damaged
async def test_a_count_that_is_too_high_had_workers_wake_each_other_for_nothing(bench: Bench) -> None:
    store = bench.store()
    await ask(store, "w1")
    await bench.client.hset(bench.keys.queue("default"), "pending", "5")
    assert (await ask(store, "w2")).parked
    assert await unheard(bench, "w1", "w2") == [0, 0]
