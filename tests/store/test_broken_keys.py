"""A damaged key is an error that callers can live with, and spares the rest of a batch."""

import pytest
from builders import claim, finish, new_job, submit
from servers import Bench

from workron.errors import StoreBroken
from workron.models import Concurrency, Status


@pytest.mark.damaged
async def test_a_key_of_the_wrong_type_is_reported_as_such(bench: Bench) -> None:
    store = bench.store()
    await bench.client.set(bench.keys.queue("default"), "what?")
    with pytest.raises(StoreBroken, match="WRONGTYPE"):
        await submit(store, new_job())


@pytest.mark.damaged
@pytest.mark.parametrize("part", ["", ":running", ":queues", ":waiting:default"])
async def test_a_damaged_concurrency_key_spares_the_others(bench: Bench, part: str) -> None:
    store = bench.store()
    await bench.client.set(f"{bench.keys.concurrency('k')}{part}", "what?")
    plain, other = new_job(), new_job(concurrency=Concurrency("l", 1))
    await submit(store, new_job(concurrency=Concurrency("k", 1)), plain, other)
    claims = await claim(store, limit=5)
    assert {plain.id, other.id} <= {one.id for one in claims}
    for one in claims:
        assert (await finish(store, one)).status is Status.DONE
    assert await bench.client.exists(f"{bench.keys.prefix}quarantine")


@pytest.mark.damaged
async def test_a_damaged_job_spares_the_others_of_a_claim(bench: Bench) -> None:
    store = bench.store()
    first, broken, last = await submit(store, new_job(), new_job(), new_job())
    await bench.client.set(bench.keys.job(broken), "what?")
    claims = await claim(store, limit=3)
    assert [got.id for got in claims] == [first, last]
    for got in claims:
        assert (await finish(store, got)).status is Status.DONE
