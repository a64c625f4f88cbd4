"""Cancel and retry: they act on the run that their caller saw, and after an accepted cancel every end is cancelled."""

import pytest

from tests.builders import WORKER, claim, finish, new_job, reap_all, submit
from tests.servers import Bench
from workron.errors import Conflict, NotFound
from workron.models import Beat, Cancelled, Outcome, Reason, Status, Verdict
from workron.store import Store

FAILURE = Outcome(Reason.EXIT_CODE, exit_code=1, error="exit code 1")


async def test_a_waiting_job_is_cancelled_at_once(store: Store) -> None:
    pending, scheduled = await submit(store, new_job(), new_job(delay_ms=60_000))
    for job_id in (pending, scheduled):
        assert await store.cancel(job_id) is Cancelled.CANCELLED
        job = await store.job(job_id)
        assert (job.status, job.reason) == (Status.CANCELLED, Reason.CANCELLED)
    assert await claim(store) == []
    (queue,) = await store.queues()
    assert {status: n for status, n in queue.counts.items() if n} == {Status.CANCELLED: 2}


async def test_a_cancel_that_took_effect_may_be_repeated(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    assert await store.cancel(job_id) is await store.cancel(job_id) is Cancelled.CANCELLED


async def test_a_cancel_reaches_a_running_job_by_message_and_by_heartbeat(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    assert await store.cancel(job_id) is Cancelled.CANCELLING
    assert (await store.attempts.heartbeat(WORKER, [(got.id, got.fence)])).attempts == {got.fence: Beat.CANCEL}


@pytest.mark.parametrize("outcome", [Outcome(None, exit_code=0), FAILURE, Outcome(Reason.CANCELLED, signal=15)])
async def test_after_an_accepted_cancel_every_end_is_cancelled(store: Store, outcome: Outcome) -> None:
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    await store.cancel(job_id)
    assert (await finish(store, got, outcome)).status is Status.CANCELLED
    job = await store.job(job_id)
    assert (job.reason, job.exit_code, job.signal) == (Reason.CANCELLED, outcome.exit_code, outcome.signal)


async def test_a_cancelled_job_ends_cancelled_also_when_its_worker_dies(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    await claim(store)
    await store.cancel(job_id)
    await reap_all(store)
    assert (await store.job(job_id)).status is Status.CANCELLED


async def test_a_cancelled_job_that_is_released_ends_cancelled(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    await store.cancel(job_id)
    await store.attempts.release([(got.id, got.fence)])
    assert (await store.job(job_id)).status is Status.CANCELLED


async def test_a_result_that_came_first_stands(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    await finish(store, got)
    with pytest.raises(Conflict, match="done"):
        await store.cancel(job_id)


async def test_a_delayed_cancel_does_not_hit_a_later_run(store: Store) -> None:
    (job_id,) = await submit(store, new_job(max_attempts=1))
    (got,) = await claim(store)
    await finish(store, got, FAILURE)
    await store.retry(job_id, run=1)
    with pytest.raises(Conflict, match="run 2"):
        await store.cancel(job_id, run=1)
    assert await store.cancel(job_id, run=2) is Cancelled.CANCELLED


async def test_a_retry_starts_a_new_run_with_all_its_attempts(store: Store) -> None:
    (job_id,) = await submit(store, new_job(max_attempts=1))
    (first,) = await claim(store)
    await finish(store, first, FAILURE)
    await store.retry(job_id)
    job = await store.job(job_id)
    assert (job.status, job.run, job.attempts, job.error, job.exit_code) == (Status.PENDING, 2, 0, None, None)
    assert (await finish(store, first)).verdict is Verdict.RECORDED
    (second,) = await claim(store)
    await finish(store, second)
    assert (await store.job(job_id)).status is Status.DONE


async def test_what_has_not_ended_or_is_done_is_not_retried(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    with pytest.raises(Conflict, match="not ended"):
        await store.retry(job_id)
    (got,) = await claim(store)
    await finish(store, got)
    with pytest.raises(Conflict, match="done"):
        await store.retry(job_id)


async def test_a_retried_cancel_does_not_cancel_again(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    await store.cancel(job_id)
    await store.retry(job_id)
    (got,) = await claim(store)
    assert (await finish(store, got)).status is Status.DONE


async def test_unknown_jobs_are_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        await store.cancel("0000000000000000000000")
    with pytest.raises(NotFound):
        await store.retry("0000000000000000000000")


async def test_an_id_left_in_the_list_by_a_cancel_is_never_claimed_twice(bench: Bench) -> None:
    """In a long list a cancelled id stays: after a retry the id is there twice."""
    store = bench.store()
    (job_id,) = await submit(store, new_job())
    await store.cancel(job_id)
    await bench.client.rpush(bench.keys.pending("default", 5), job_id)
    await store.retry(job_id)
    claims = await claim(store, limit=5)
    assert [got.id for got in claims] == [job_id]
    (queue,) = await store.queues()
    assert (queue.counts[Status.PENDING], queue.counts[Status.RUNNING]) == (0, 1)


async def test_many_dead_ids_at_the_head_do_not_look_like_an_empty_queue(bench: Bench) -> None:
    store = bench.store()
    await bench.client.rpush(bench.keys.pending("default", 5), *(f"dead{n}" for n in range(3_000)))
    (job_id,) = await submit(store, new_job())
    from workron.models import ClaimRequest

    answers = [await store.attempts.claim(ClaimRequest("w", ["default"], 1, f"b:{n}")) for n in range(3)]
    assert [answer.more for answer in answers] == [True, True, False] or answers[2].claims
    got = [claim.id for answer in answers for claim in answer.claims]
    assert (got or [one.id for one in await claim(store)]) == [job_id]
