"""Parked requests: a worker that finds nothing leaves its request; who makes work claims for it."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from builders import after, claim, finish, new_job, reap_all, submit
from servers import Bench

from workron.exchange import News
from workron.listing import JobFilter
from workron.models import Claim, Claimed, ClaimRequest, Outcome, Reason, Status
from workron.policy import Policy
from workron.store import Store

PATIENT = Policy(lease_ms=30_000, pass_ms=1000)
FAILURE = Outcome(Reason.EXIT_CODE, exit_code=1)


async def ask(store: Store, worker: str = "w1", *, limit: int = 1, park_ms: int = 60_000, **fields: Any) -> Claimed:
    """Make a request that stays the same until it gets something."""
    fields = {"queues": ("default",), "request_id": "boot:1"} | fields
    return await store.attempts.claim(ClaimRequest(worker=worker, limit=limit, park_ms=park_ms, **fields))


async def hear(store: Store, worker: str = "w1") -> News | None:
    async with store.attempts.own_connection() as waiting:
        return await store.attempts.news(worker, waiting, 0.01)


async def unheard(bench: Bench, *workers: str) -> list[int]:
    """How many news wait for each worker."""
    return [await bench.client.llen(bench.keys.inbox(worker)) for worker in workers]


def sorted_claims(claims: Sequence[Claim]) -> list[Claim]:
    return sorted((replace(one, fence=0) for one in claims), key=lambda one: one.id)


async def test_a_submission_claims_for_a_parked_worker(store: Store) -> None:
    assert (await ask(store)).parked
    (job_id,) = await submit(store, new_job())
    news = await hear(store)
    assert news is not None
    (got,) = news.claims
    assert (news.worker, news.request_id, got.id, got.attempt) == ("w1", "boot:1", job_id, 1)
    job = await store.job(job_id)
    assert (job.status, job.worker) == (Status.RUNNING, "w1")
    await finish(store, got)
    assert (await store.job(job_id)).status is Status.DONE


async def test_news_say_what_a_claim_says(store: Store) -> None:
    fields = {"argv": ("printf", "%s", "a b:c\n-", ""), "env": {"A": "ä:1", "B": ""}, "cwd": "/tmp", "timeout_ms": 5000}
    await ask(store, limit=2)
    await submit(store, new_job(**fields), new_job(command="echo 3:-x\n✓"))
    news = await hear(store)
    assert news is not None
    for got in news.claims:
        await store.attempts.release([(got.id, got.fence)])
    again = await claim(store, worker="w2", limit=2)
    plain = {one.id: (one.command, one.argv, one.env, one.cwd, one.timeout_ms, one.queue) for one in again}
    assert plain == {
        one.id: (one.command, one.argv, one.env, one.cwd, one.timeout_ms, one.queue) for one in news.claims
    }
    assert len(plain) == 2


async def test_a_repeat_of_the_parked_request_gets_the_same_claims(store: Store) -> None:
    await ask(store)
    await submit(store, new_job(), new_job())
    news = await hear(store)
    repeated = await ask(store)
    assert news is not None
    assert repeated.claims == news.claims
    assert len(news.claims) == 1


async def test_a_parked_request_is_answered_once(bench: Bench) -> None:
    store = bench.store()
    await ask(store)
    await submit(store, new_job())
    (second,) = await submit(store, new_job())
    assert await unheard(bench, "w1") == [1]
    assert (await store.job(second)).status is Status.PENDING


async def test_who_asks_again_is_parked_once_more(store: Store) -> None:
    await ask(store)
    assert (await ask(store, limit=2)).parked
    await submit(store, new_job(), new_job(), new_job())
    news = await hear(store)
    assert news is not None
    assert len(news.claims) == 2


async def test_jobs_go_to_those_who_have_waited_longest(bench: Bench) -> None:
    store = bench.store()
    for number in range(3):
        await ask(store, f"w{number}", park_ms=50_000 + number)
    await submit(store, new_job(), new_job())
    assert await unheard(bench, "w0", "w1", "w2") == [1, 1, 0]


async def test_of_many_jobs_one_worker_is_told_to_take_its_share(bench: Bench) -> None:
    store = bench.store()
    for worker in ("w1", "w2"):
        await ask(store, worker, limit=100)
    await submit(store, *(new_job() for _ in range(50)))
    assert sorted(await unheard(bench, "w1", "w2")) == [0, 1]
    news = await hear(store, "w1") or await hear(store, "w2")
    assert news is not None
    assert news.claims == ()
    taken = await ask(store, news.worker, limit=30)
    assert len(taken.claims) == 30
    assert sum(await unheard(bench, "w1", "w2")) == 1, "who leaves work behind wakes the next"


async def test_a_worker_parked_at_two_queues_is_told_once(bench: Bench) -> None:
    store = bench.store()
    await ask(store, queues=("default", "other"), limit=2)
    await submit(store, new_job())
    (second,) = await submit(store, new_job(queue="other"))
    assert await unheard(bench, "w1") == [1]
    assert (await store.job(second)).status is Status.PENDING


async def test_a_request_is_parked_no_longer_than_it_wanted(bench: Bench) -> None:
    store = bench.store()
    await ask(store, park_ms=20)
    await ask(store, "w2", queues=("default", "other"))  # keeps the queue's set of parked workers
    await asyncio.sleep(0.04)
    (job_id,) = await submit(store, new_job())
    assert await unheard(bench, "w1", "w2") == [0, 1]
    assert (await store.job(job_id)).worker == "w2"


async def test_who_waits_longer_is_not_forgotten_because_another_waits_for_less(bench: Bench) -> None:
    store = bench.store()
    await ask(store, park_ms=60_000)
    await ask(store, "w2", park_ms=20)
    await asyncio.sleep(0.04)
    await submit(store, new_job())
    assert await unheard(bench, "w1", "w2") == [1, 0]


async def test_who_waits_for_longer_than_two_leases_is_not_forgotten(bench: Bench) -> None:
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


async def test_who_ends_its_parking_too_late_is_told_what_it_has_got(store: Store) -> None:
    await ask(store)
    (job_id,) = await submit(store, new_job())
    (got,) = (await ask(store, limit=0, park_ms=0)).claims
    assert got.id == job_id


async def test_who_was_woken_and_goes_wakes_another(bench: Bench) -> None:
    store = bench.store()
    for worker in ("w1", "w2"):
        await ask(store, worker, limit=100)
    await submit(store, *(new_job() for _ in range(50)))
    woken = "w1" if await hear(store, "w1") else "w2"
    await ask(store, woken, limit=0, park_ms=0)
    assert sum(await unheard(bench, "w1", "w2")) >= 1


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


async def test_the_reaper_wakes_a_parked_worker_where_jobs_wait_and_nobody_comes(bench: Bench) -> None:
    """Who was woken first may have died of it."""
    store = bench.store()
    for worker in ("w1", "w2"):
        await ask(store, worker)
    await submit(store, *(new_job() for _ in range(50)))
    await store.upkeep.promote()
    assert await unheard(bench, "w1", "w2") == [1, 1]


async def test_what_a_dead_worker_does_not_take_out_of_its_inbox_is_taken_back(bench: Bench) -> None:
    """An idle worker was killed; the next job would have waited for the end of a lease that nobody held."""
    store = bench.store(PATIENT)
    await store.upkeep.reap()
    await ask(store)
    (job_id,) = await submit(store, new_job())
    while (await store.job(job_id)).status is Status.RUNNING:
        await store.upkeep.reap()
        await asyncio.sleep(0.05)
    job = await store.job(job_id)
    assert (job.status, job.attempts) == (Status.PENDING, 0)
    assert await unheard(bench, "w1") == [0]
    assert (await ask(store, limit=0, park_ms=0)).claims == ()
    assert await bench.client.zcard(f"{bench.keys.prefix}handed") == 0


async def test_what_was_taken_out_of_the_inbox_is_not_taken_back(bench: Bench) -> None:
    store = bench.store(PATIENT)
    await store.upkeep.reap()
    await ask(store)
    (job_id,) = await submit(store, new_job())
    assert await hear(store)
    for _ in range(15):
        await store.upkeep.reap()
        await asyncio.sleep(0.1)
    assert (await store.job(job_id)).status is Status.RUNNING
    assert await bench.client.zcard(f"{bench.keys.prefix}handed") == 0


async def test_an_older_copy_of_a_request_does_not_end_the_parking_of_the_next(bench: Bench) -> None:
    store = bench.store()
    await submit(store, new_job())
    await ask(store, request_id="boot:1")
    await ask(store, request_id="boot:2")
    await ask(store, request_id="boot:1", park_ms=0)  # equal: the same claims; nothing else changes
    await submit(store, new_job())
    assert await unheard(bench, "w1") == [1]


async def test_a_second_sequence_of_requests_does_not_disturb_the_first(store: Store) -> None:
    await submit(store, new_job(), new_job())
    one = await ask(store, request_id="boot:1")
    other = await ask(store, request_id="boot~2:1")
    assert one.claims[0].id != other.claims[0].id
    assert (await ask(store, request_id="boot:1")).claims == one.claims
    assert (await ask(store, request_id="boot~2:1")).claims == other.claims


async def test_claims_that_were_got_by_asking_again_are_not_taken_back(bench: Bench) -> None:
    """They run; only the news of them were still in the inbox."""
    store = bench.store(PATIENT)
    await store.upkeep.reap()
    await ask(store)
    await submit(store, new_job())
    (got,) = (await ask(store)).claims
    for _ in range(15):
        await store.upkeep.reap()
        await asyncio.sleep(0.1)
    assert (await store.job(got.id)).status is Status.RUNNING


async def test_what_is_noted_of_handed_claims_does_not_pile_up_between_the_reapers_passes(bench: Bench) -> None:
    store = bench.store()
    for number in range(1, 50):
        await ask(store, request_id=f"boot:{number}")
        await submit(store, new_job())
        await hear(store)
    assert await bench.client.zcard(f"{bench.keys.prefix}handed") <= 1


async def test_a_request_whose_claims_were_taken_back_is_answered_and_not_parked(store: Store) -> None:
    """Its worker has to go on to another id; it repeated the old one for ever."""
    await ask(store)
    (job_id,) = await submit(store, new_job())
    news = await hear(store)
    assert news is not None
    await store.attempts.release([(job_id, news.claims[0].fence)])
    again = await ask(store)
    assert (again.claims, again.answered, again.more) == ((), True, True)


async def test_who_is_parked_for_a_short_time_does_not_end_the_parking_of_others(bench: Bench) -> None:
    store = bench.store()
    await ask(store, "w1")
    await ask(store, "w2", park_ms=20)
    await asyncio.sleep(0.04)
    await submit(store, new_job())
    assert await unheard(bench, "w1") == [1]


async def test_jobs_of_one_call_start_by_priority_and_then_in_order(store: Store) -> None:
    await ask(store, limit=4)
    many = [new_job(priority=priority) for priority in (1, 9, 1, 9)]
    await submit(store, *many)
    news = await hear(store)
    assert news is not None
    assert [one.id for one in news.claims] == [many[at].id for at in (1, 3, 0, 2)]


async def test_one_call_hands_over_few_jobs_to_however_many_queues(bench: Bench) -> None:
    store = bench.store()
    for number in range(30):
        await ask(store, f"w{number}", queues=(f"q{number}",))
    await submit(store, *(new_job(queue=f"q{number}") for number in range(30)))
    running = (await store.list_jobs(JobFilter(status=Status.RUNNING))).jobs
    assert len(running) == 16
    assert sum(await unheard(bench, *(f"w{number}" for number in range(30)))) == 30, "the others are woken"


async def test_a_late_copy_does_not_hide_claims_that_nobody_has_heard_of_yet(bench: Bench) -> None:
    store = bench.store()
    await submit(store, new_job())
    await ask(store, request_id="boot:1")
    await ask(store, request_id="boot:2")
    await submit(store, new_job())
    assert (await ask(store, request_id="boot:1")).more, "stale"
    assert await bench.client.zcard(f"{bench.keys.prefix}handed") == 1
