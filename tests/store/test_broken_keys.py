"""A damaged key is an error that callers can live with, and spares the rest of a batch."""

import pytest
from builders import claim, finish, new_job, submit
from servers import Bench

from workron.errors import StoreBroken
from workron.models import Status


@pytest.mark.damaged
async def test_a_key_of_the_wrong_type_is_reported_as_such(bench: Bench) -> None:
    store = bench.store()
    await bench.client.set(bench.keys.queue("default"), "what?")
    with pytest.raises(StoreBroken, match="WRONGTYPE"):
        await submit(store, new_job())


@pytest.mark.damaged
async def test_a_damaged_job_spares_the_others_of_a_claim(bench: Bench) -> None:
    store = bench.store()
    first, broken, last = await submit(store, new_job(), new_job(), new_job())
    await bench.client.set(bench.keys.job(broken), "what?")
    claims = await claim(store, limit=3)
    assert [got.id for got in claims] == [first, last]
    for got in claims:
        assert (await finish(store, got)).status is Status.DONE
