"""A damaged key is an error that callers can live with, and spares the rest of a batch."""

import pytest

from tests.builders import after, claim, finish, new_job, submit
from tests.servers import Bench
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


@pytest.mark.damaged
@pytest.mark.parametrize("broken", ["pending", "skipped", "due", "jobs", "events", "propagate"])
async def test_a_damaged_key_stopped_what_else_the_call_had_to_write(bench: Bench, broken: str) -> None:
    store = bench.store()
    parent, other = await submit(store, new_job(queue="first"), new_job(queue="first"))
    [child] = await submit(store, new_job(queue="broken", depends_on=after(parent)))
    keys = {
        "pending": bench.keys.pending("broken", 5),
        "skipped": bench.keys.queue("broken") + ":blocked",
        "due": bench.keys.due,
        "jobs": bench.keys.jobs,
        "events": f"{bench.keys.prefix}events",
        "propagate": bench.keys.propagate,
    }
    claims = await claim(store, queues=["first"], limit=2)
    await bench.client.delete(keys[broken])
    await bench.client.set(keys[broken], "what?")
    for one in claims:
        assert (await finish(store, one)).status is Status.DONE
    counts = {queue.name: queue.counts for queue in await store.queues()}
    assert counts["first"][Status.DONE] == 2
    await bench.client.delete(keys[broken])
    await store.doctor.examine(rebuild=True)
    await store.maintenance.propagate()
    assert [one.id for one in await claim(store, queues=["broken"])] == [child]
    assert other in {one.id for one in claims}
