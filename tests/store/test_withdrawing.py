"""Claim requests that are taken back, because their answer can't be delivered."""

from dataclasses import replace

from builders import new_job, submit
from servers import Bench

from workron.models import ClaimRequest, Status


async def test_a_request_that_was_given_up_is_not_parked_and_holds_nothing(bench: Bench) -> None:
    store = bench.store()
    request = ClaimRequest("w1", ("default",), 1, "boot:1", 60_000, inbox="api")
    await store.attempts.claim(request)
    assert await store.attempts.withdraw(request)
    (job_id,) = await submit(store, new_job())
    assert (await store.job(job_id)).status is Status.PENDING
    await store.attempts.claim(request)
    assert await store.attempts.withdraw(request)
    job = await store.job(job_id)
    assert (job.status, job.attempts) == (Status.PENDING, 0)
    (again,) = (await store.attempts.claim(request)).claims
    assert again.id == job_id


async def test_a_request_made_again_through_another_inbox_is_not_given_up(bench: Bench) -> None:
    store = bench.store()
    first = ClaimRequest("w1", ("default",), 1, "boot:1", 60_000, inbox="one")
    second = replace(first, inbox="two")
    await submit(store, new_job())
    got = (await store.attempts.claim(first)).claims
    assert (await store.attempts.claim(second)).claims == got
    assert not await store.attempts.withdraw(first)
    assert (await store.attempts.claim(replace(first, limit=0, park_ms=0))).claims == ()
    assert (await store.job(got[0].id)).status is Status.RUNNING


async def test_a_poll_that_came_late_took_back_what_its_worker_had_got_by_an_exchange(bench: Bench) -> None:
    store = bench.store()
    exchange = ClaimRequest("w1", ("default",), 1, "boot:1", inbox="api!")
    poll = replace(exchange, park_ms=60_000, inbox="api")
    await submit(store, new_job())
    got = (await store.attempts.claim(exchange)).claims
    assert (await store.attempts.claim(poll)).claims == got
    assert not await store.attempts.withdraw(poll)
    assert not await store.attempts.withdraw(exchange)
    assert (await store.job(got[0].id)).status is Status.RUNNING
