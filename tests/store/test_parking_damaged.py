"""Parked requests among damaged keys: who waits must not cost those who submit."""

import pytest

from tests.builders import claim, new_job, reap_all, submit
from tests.servers import Bench
from workron.errors import StoreBroken
from workron.models import ClaimRequest, Status
from workron.store import Store
from workron.store.policy import Policy

pytestmark = pytest.mark.damaged


async def ask(store: Store) -> None:
    await store.attempts.claim(ClaimRequest("w1", ("default",), 1, "boot:1", park_ms=60_000))


@pytest.mark.parametrize("spot", ["x", "w1", ""])
async def test_a_worker_whose_request_is_damaged_does_not_stop_the_submissions_of_others(
    bench: Bench, spot: str
) -> None:
    store = bench.store()
    await ask(store)
    await bench.client.hset(f"{bench.keys.worker('w1')}:claim", "parked", spot)
    (job_id,) = await submit(store, new_job())
    assert await bench.client.lrange(bench.keys.pending("default", 5), 0, -1) == [job_id.encode()]


@pytest.mark.parametrize("key", ["inbox:w1", "queue:default:parked", "worker:w1:claim"])
async def test_a_damaged_key_of_parked_requests_spares_the_jobs(bench: Bench, key: str) -> None:
    """The submission was half written, and the reaper lost what it had to write."""
    store = bench.store()
    await submit(store, new_job())
    (lost,) = await claim(store, worker="w2")
    await ask(store)
    await bench.client.set(f"{bench.keys.prefix}{key}", "x")
    (job_id,) = await submit(store, new_job())
    await reap_all(store)
    assert (await store.job(lost.id)).status is Status.PENDING
    waiting = await bench.client.lrange(bench.keys.pending("default", 5), 0, -1)
    assert lost.id.encode() in waiting
    assert (await store.job(job_id)).status is Status.RUNNING or job_id.encode() in waiting


async def test_a_repeat_spares_the_other_claims_when_a_job_was_damaged_meanwhile(bench: Bench) -> None:
    store = bench.store(Policy(lease_ms=10_000, pass_ms=100))
    await submit(store, new_job(), new_job())
    request = ClaimRequest("w1", ("default",), 2, "boot:1")
    first, second = (await store.attempts.claim(request)).claims
    await bench.client.delete(bench.keys.job(first.id))
    await bench.client.set(bench.keys.job(first.id), "x")
    assert (await store.attempts.claim(request)).claims == (second,)


async def test_a_queue_that_is_damaged_cost_the_claims_of_the_one_before_it(bench: Bench) -> None:
    """Who leaves work behind looks at it, too: what was claimed had no record then, and each repeat claimed more."""
    store = bench.store()
    await submit(store, new_job(), new_job())
    await bench.client.set(bench.keys.queue("b"), "x")
    request = ClaimRequest("w1", ("default", "b"), 1, "boot:1")
    (got,) = (await store.attempts.claim(request)).claims
    assert (await store.attempts.claim(request)).claims == (got,)
    assert await bench.client.zcard(bench.keys.leases) == 1


async def test_a_damaged_list_lost_claims_of_another_queue(bench: Bench) -> None:
    store = bench.store()
    job_ids = await submit(store, new_job(), new_job())
    await bench.client.set(bench.keys.pending("b", 5), "x")
    claimed = await store.attempts.claim(ClaimRequest("w1", ("default", "b"), 5, "boot:1"))
    assert [one.id for one in claimed.claims] == job_ids
    assert await bench.client.zcard(bench.keys.leases) == 2
    with pytest.raises(StoreBroken, match="overwritten a key"):
        await store.attempts.claim(ClaimRequest("w1", ("default", "b"), 5, "boot:2"))
