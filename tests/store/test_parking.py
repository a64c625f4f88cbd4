"""Parked requests: a worker that finds nothing leaves its request; who makes work wakes it."""

import asyncio
import time

import pytest

from tests.builders import after, claim, finish, new_job, reap_all, submit
from tests.parked import ask, unheard
from tests.servers import Bench
from workron.models import ClaimRequest, Outcome, Reason, Status
from workron.store import Store
from workron.store.policy import Policy

FAILURE = Outcome(Reason.EXIT_CODE, exit_code=1)


async def members(bench: Bench, *queues: str) -> list[int]:
    """How many workers stand at each queue."""
    return [await bench.client.zcard(bench.keys.parked(queue)) for queue in queues]


async def hear(store: Store, worker: str = "w1") -> bool:
    """Whether it is woken."""
    async with store.attempts.own_connection() as waiting:
        return await store.attempts.woken(worker, waiting, 0.01) == worker


async def keys_of(bench: Bench) -> set[bytes]:
    return {key async for key in bench.client.scan_iter(f"{bench.keys.prefix}*")}


async def test_a_submission_wakes_a_parked_worker_and_its_request_finds_the_job(store: Store) -> None:
    assert (await ask(store)).parked
    (job_id,) = await submit(store, new_job())
    assert (await store.job(job_id)).status is Status.PENDING
    assert await hear(store)
    (got,) = (await ask(store)).claims
    assert (got.id, got.attempt) == (job_id, 1)
    job = await store.job(job_id)
    assert (job.status, job.worker) == (Status.RUNNING, "w1")
    await finish(store, got)
    assert (await store.job(job_id)).status is Status.DONE


async def test_a_parked_worker_claims_in_the_round_trip_that_wakes_it(store: Store) -> None:
    request = ClaimRequest("w1", ("default",), 1, "boot:1", park_ms=60_000)
    async with store.attempts.own_connection() as waiting:
        assert (await store.attempts.wait(request, waiting, 0.01)).parked, "nobody woke it"
        (job_id,) = await submit(store, new_job())
        claimed = await asyncio.wait_for(store.attempts.wait(request, waiting, 4.0), 3.0)
    assert [one.id for one in claimed.claims] == [job_id]


async def test_a_repeat_of_the_parked_request_gets_the_same_claims(store: Store) -> None:
    await ask(store)
    await submit(store, new_job(), new_job())
    first = await ask(store)
    assert len(first.claims) == 1
    assert (await ask(store)).claims == first.claims


async def test_a_parked_request_is_woken_once(bench: Bench) -> None:
    store = bench.store()
    await ask(store)
    await submit(store, new_job())
    await submit(store, new_job())
    assert await unheard(bench, "w1") == [1]


async def test_a_worker_that_asks_again_is_parked_again(bench: Bench) -> None:
    store = bench.store()
    await ask(store)
    assert (await ask(store, limit=2)).parked
    await submit(store, new_job(), new_job(), new_job())
    assert await unheard(bench, "w1") == [1]
    assert len((await ask(store, limit=2)).claims) == 2


async def test_the_worker_that_has_waited_longest_is_woken_first(bench: Bench) -> None:
    store = bench.store()
    for number in range(3):
        await ask(store, f"w{number}", park_ms=50_000 + number)
    await submit(store, new_job())
    await submit(store, new_job())
    assert await unheard(bench, "w0", "w1", "w2") == [1, 1, 0]


async def test_of_many_jobs_one_worker_takes_its_share_and_wakes_the_next(bench: Bench) -> None:
    store = bench.store()
    for number, worker in enumerate(("w1", "w2")):
        await ask(store, worker, limit=100, park_ms=50_000 + number)
    await submit(store, *(new_job() for _ in range(50)))
    assert await unheard(bench, "w1", "w2") == [1, 0]
    assert len((await ask(store, "w1", limit=30)).claims) == 30
    assert await unheard(bench, "w1", "w2") == [1, 1]


async def test_a_worker_parked_at_two_queues_is_woken_once(bench: Bench) -> None:
    store = bench.store()
    await ask(store, queues=("default", "other"), limit=2)
    await submit(store, new_job())
    await submit(store, new_job(queue="other"))
    assert await unheard(bench, "w1") == [1]
    assert await members(bench, "default", "other") == [0, 0]


async def test_a_request_is_parked_no_longer_than_it_wanted(bench: Bench) -> None:
    store = bench.store()
    await ask(store, park_ms=20)
    await ask(store, "w2", queues=("default", "other"))  # keeps the queue's set of parked workers
    await asyncio.sleep(0.04)
    await submit(store, new_job())
    assert await unheard(bench, "w1", "w2") == [0, 1]


async def test_a_longer_wait_is_not_forgotten_because_of_a_shorter_one(bench: Bench) -> None:
    store = bench.store()
    await ask(store, park_ms=60_000)
    await ask(store, "w2", park_ms=20)
    await asyncio.sleep(0.04)
    await submit(store, new_job())
    assert await unheard(bench, "w1", "w2") == [1, 0]


async def test_a_wait_of_more_than_two_leases_is_not_forgotten(bench: Bench) -> None:
    store = bench.store(Policy(lease_ms=20))
    await ask(store, park_ms=60_000)
    await asyncio.sleep(0.06)
    await submit(store, new_job())
    assert await unheard(bench, "w1") == [1]


async def test_a_limit_of_none_ends_the_parking(bench: Bench) -> None:
    store = bench.store()
    await ask(store)
    assert (await ask(store, limit=0, park_ms=0)).claims == ()
    (job_id,) = await submit(store, new_job())
    assert (await store.job(job_id)).status is Status.PENDING
    assert await unheard(bench, "w1") == [0]


async def test_what_a_request_that_is_ended_has_got_goes_back_and_does_not_count(bench: Bench) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job())
    assert len((await ask(store)).claims) == 1
    await ask(store, limit=0, park_ms=0)
    job = await store.job(job_id)
    assert (job.status, job.attempts) == (Status.PENDING, 0)
    (again,) = (await ask(store)).claims
    assert again.id == job_id


async def test_a_request_that_was_made_again_through_another_inbox_is_not_ended_here(store: Store) -> None:
    await ask(store, inbox="one")
    await ask(store, inbox="two")
    await ask(store, inbox="one", limit=0, park_ms=0)
    (job_id,) = await submit(store, new_job())
    assert await hear(store, "two") is False, "it brings the worker's name"
    assert len((await ask(store, inbox="two")).claims) == 1
    await ask(store, inbox="one", limit=0, park_ms=0)
    assert (await store.job(job_id)).status is Status.RUNNING


async def test_the_end_of_another_request_leaves_a_parked_one_alone(bench: Bench) -> None:
    store = bench.store()
    await ask(store, request_id="one")
    await ask(store, request_id="two")
    await ask(store, request_id="one", limit=0, park_ms=0)
    await submit(store, new_job())
    assert await unheard(bench, "w1") == [1]


async def test_claims_that_two_answers_have_brought_are_not_taken_back(store: Store) -> None:
    """The first answer was lost, or so it seemed; who asked again runs them."""
    (job_id,) = await submit(store, new_job())
    await ask(store)
    await ask(store)
    await ask(store, limit=0, park_ms=0)
    assert (await store.job(job_id)).status is Status.RUNNING


async def test_a_request_that_was_ended_leaves_earlier_ones_overtaken(bench: Bench) -> None:
    store = bench.store()
    await ask(store, request_id="boot:2")
    await ask(store, request_id="boot:2", limit=0, park_ms=0)
    await submit(store, new_job())
    assert (await ask(store, request_id="boot:1")).claims == ()
    assert len((await ask(store, request_id="boot:2")).claims) == 1


async def test_claim_requests_that_have_ended_leave_nothing(bench: Bench) -> None:
    """Their workers stood at the queue until a job came, which then looked at all of them in one script."""
    store = bench.store()
    await ask(store, "steady")
    before = await keys_of(bench)
    for number in range(50):
        await ask(store, f"pod-{number}", request_id=f"once-{number}")
        await ask(store, f"pod-{number}", request_id=f"once-{number}", limit=0, park_ms=0)
    assert await members(bench, "default") == [1]
    assert await keys_of(bench) == before


async def test_expired_requests_are_removed_by_new_ones(bench: Bench) -> None:
    store = bench.store()
    for number in range(50):
        await ask(store, f"pod-{number}", park_ms=1)
    await asyncio.sleep(0.01)
    for number in range(6):
        await ask(store, f"w{number}")
    assert await members(bench, "default") == [6]


async def test_a_submission_looks_at_few_requests_that_have_ended(bench: Bench) -> None:
    """It went over all of them: 100,000 took longer than a call may."""
    store = bench.store()
    parked = bench.keys.parked("default")
    soon = int(time.time() * 1000) + 50_000
    await bench.client.zadd(parked, {f"gone-{number}": 1 for number in range(1000)})
    await bench.client.zadd(parked, {f"unknown-{number}": soon for number in range(1000)})
    await bench.client.pexpire(parked, 60_000)
    await submit(store, new_job())
    assert await members(bench, "default") == [2000 - 10]


async def test_a_woken_worker_that_leaves_wakes_another(bench: Bench) -> None:
    store = bench.store()
    for number, worker in enumerate(("w1", "w2")):
        await ask(store, worker, limit=100, park_ms=50_000 + number)
    await submit(store, *(new_job() for _ in range(50)))
    assert await hear(store, "w1")
    await ask(store, "w1", limit=0, park_ms=0)
    assert await unheard(bench, "w1", "w2") == [0, 1]


async def test_jobs_whose_parents_end_wake_a_parked_worker(bench: Bench) -> None:
    store = bench.store()
    (parent,) = await submit(store, new_job())
    await submit(store, new_job(depends_on=after(parent)))
    (got,) = await claim(store, worker="w2")
    await ask(store)
    await finish(store, got)
    assert await unheard(bench, "w1") == [1]


@pytest.mark.parametrize("how", ["retry", "release", "reap"])
async def test_a_job_that_comes_back_wakes_a_parked_worker(bench: Bench, how: str) -> None:
    store = bench.store()
    await submit(store, new_job(max_attempts=1 if how == "retry" else 3))
    (got,) = await claim(store, worker="w2")
    await ask(store)
    if how == "retry":
        await finish(store, got, FAILURE)
        await store.retry(got.id)
    elif how == "release":
        await store.attempts.release([(got.id, got.fence)])
    else:
        await reap_all(store)
    assert await unheard(bench, "w1") == [1]


async def test_an_earlier_due_time_wakes_a_parked_worker(bench: Bench) -> None:
    store = bench.store()
    await submit(store, new_job(delay_ms=60_000))
    await ask(store)
    await submit(store, new_job(delay_ms=90_000))
    assert await unheard(bench, "w1") == [0]
    await submit(store, new_job(delay_ms=30_000))
    assert await unheard(bench, "w1") == [1]


async def test_the_reaper_wakes_a_parked_worker_where_jobs_wait_unclaimed(bench: Bench) -> None:
    """Who was woken first may have died of it."""
    store = bench.store()
    for worker in ("w1", "w2"):
        await ask(store, worker)
    await submit(store, *(new_job() for _ in range(50)))
    await store.maintenance.rouse()
    assert await unheard(bench, "w1", "w2") == [1, 1]


async def test_an_older_copy_of_a_request_does_not_end_the_parking_of_the_next(bench: Bench) -> None:
    store = bench.store()
    await submit(store, new_job())
    await ask(store, request_id="boot:1")
    await ask(store, request_id="boot:2")
    await ask(store, request_id="boot:1", park_ms=0)  # equal: the same claims; nothing else changes
    await submit(store, new_job())
    assert await unheard(bench, "w1") == [1]


async def test_a_request_whose_claims_were_given_back_is_answered_and_not_parked(store: Store) -> None:
    """Its worker has to go on to another id; it repeated the old one for ever."""
    await submit(store, new_job())
    (got,) = (await ask(store)).claims
    await store.attempts.release([(got.id, got.fence)])
    again = await ask(store)
    assert (again.claims, again.answered, again.more) == ((), True, True)


async def test_a_worker_that_is_parked_briefly_does_not_end_the_parking_of_others(bench: Bench) -> None:
    store = bench.store()
    await ask(store, "w1")
    await ask(store, "w2", park_ms=20)
    await asyncio.sleep(0.04)
    await submit(store, new_job())
    assert await unheard(bench, "w1") == [1]


async def test_a_server_that_died_with_many_requests_cost_a_pass_for_each_of_them(bench: Bench) -> None:
    """Each pass woke one that nobody hears any more."""
    store = bench.store()
    for number in range(50):
        await ask(store, f"d{number}", inbox="dead", park_ms=600_000)
    await ask(store, "w1", inbox="alive", park_ms=660_000)
    await submit(store, new_job())
    passes = 0
    while await unheard(bench, "alive") == [0]:
        await store.maintenance.rouse()
        passes += 1
    assert passes == 5


async def test_a_pass_wakes_one_worker_with_a_recent_heartbeat(bench: Bench) -> None:
    store = bench.store()
    for worker in ("w1", "w2", "w3"):
        await ask(store, worker)
    await submit(store, new_job(), new_job())
    assert await hear(store, "w1")
    await store.maintenance.rouse()
    assert await unheard(bench, "w1", "w2", "w3") == [0, 1, 0]
