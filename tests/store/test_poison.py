"""Jobs with which workers were lost again and again are claimed alone."""

import pytest

from tests.builders import claim, finish, jobs, new_job, reap_all, submit
from tests.servers import Bench
from workron.models import Claim, Concurrency, Job, Reason, Status
from workron.store import Store


def ids_of(claims: list[Claim]) -> list[str]:
    return [one.id for one in claims]


async def test_a_poison_job_is_claimed_alone_and_the_jobs_behind_it_stay_in_order(bench: Bench) -> None:
    store = bench.store()
    first, suspect, third, fourth = await submit(store, *jobs(4))
    await bench.client.hset(bench.keys.job(suspect), "losses", "2")
    got = [ids_of(await claim(store, limit=4)) for _ in range(3)]
    assert got == [[first], [suspect], [third, fourth]]


async def test_a_poison_job_that_starts_in_place_of_another_job_of_its_key_is_claimed_alone(bench: Bench) -> None:
    store, pending = bench.store(), bench.keys.pending("default", 5)
    key = Concurrency("k", 5)
    first, suspect, other = await submit(store, new_job(), new_job(concurrency=key), new_job(concurrency=key))
    await bench.client.hset(bench.keys.job(suspect), "losses", "2")
    await bench.client.lrem(pending, 1, suspect)
    await bench.client.rpush(pending, suspect)  # behind the other, which has to let it go first
    got = [ids_of(await claim(store, limit=4)) for _ in range(3)]
    assert got == [[first], [suspect], [other]]


async def suspect_of(bench: Bench, store: Store) -> str:
    """A job with one attempt left, with which a worker was lost."""
    (job_id,) = await submit(store, new_job(max_attempts=2))
    await claim(store, worker="dies")
    await reap_all(store)
    return job_id


def as_it_is(job: Job) -> tuple[Status, Reason | None, int]:
    return job.status, job.reason, job.attempts


async def test_a_good_job_failed_because_its_worker_was_lost_before_it_began(bench: Bench) -> None:
    store = bench.store()
    job_id = await suspect_of(bench, store)
    for _ in range(3):
        (got,) = await claim(store, worker="dies", begins=True)
        assert (got.attempt, got.more) == (2, {"alone": True})
        await reap_all(store)
        assert as_it_is(await store.job(job_id)) == (Status.PENDING, Reason.WORKER_LOST, 1)
    (got,) = await claim(store, begins=True)
    assert await store.attempts.begin(got.id, got.fence)
    await finish(store, got)
    assert as_it_is(await store.job(job_id)) == (Status.DONE, None, 2)


@pytest.mark.parametrize("begins", [True, False])
async def test_a_worker_that_is_lost_with_a_poison_job_that_had_begun_counts_against_it(
    bench: Bench, begins: bool
) -> None:
    store = bench.store()
    job_id = await suspect_of(bench, store)
    (got,) = await claim(store, worker="dies", begins=begins)
    if begins:  # who claims without has no word for it
        assert await store.attempts.begin(got.id, got.fence)
    await reap_all(store)
    assert as_it_is(await store.job(job_id)) == (Status.FAILED, Reason.WORKER_LOST, 2)


async def test_a_job_that_kills_its_worker_even_before_it_begins_does_so_ten_times_more(bench: Bench) -> None:
    store = bench.store()
    job_id = await suspect_of(bench, store)
    for _ in range(10):
        await claim(store, worker="dies", begins=True)
        await reap_all(store)
    assert as_it_is(await store.job(job_id)) == (Status.PENDING, Reason.WORKER_LOST, 1)
    await claim(store, worker="dies", begins=True)
    await reap_all(store)
    assert as_it_is(await store.job(job_id)) == (Status.FAILED, Reason.WORKER_LOST, 2)


async def test_a_job_that_was_lost_once_and_has_attempts_left_is_no_poison_job_and_its_next_loss_counts(
    bench: Bench,
) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job(max_attempts=3))
    for attempt in (1, 2):
        (got,) = await claim(store, worker="dies", begins=True)
        assert (got.attempt, got.more) == (attempt, {})
        await reap_all(store)
        assert as_it_is(await store.job(job_id)) == (Status.PENDING, Reason.WORKER_LOST, attempt)


async def test_a_poison_job_that_was_lost_does_not_begin(bench: Bench) -> None:
    store = bench.store()
    await suspect_of(bench, store)
    (got,) = await claim(store, begins=True)
    await reap_all(store)
    assert not await store.attempts.begin(got.id, got.fence)
    (again,) = await claim(store, begins=True)
    assert not await store.attempts.begin(got.id, got.fence)
    assert await store.attempts.begin(again.id, again.fence)


async def test_a_poison_job_that_is_cancelled_before_it_begins_is_cancelled_by_the_reaper(bench: Bench) -> None:
    store = bench.store()
    job_id = await suspect_of(bench, store)
    await claim(store, worker="dies", begins=True)
    await store.cancel(job_id)
    await reap_all(store)
    assert (await store.job(job_id)).status is Status.CANCELLED


async def test_what_waited_to_begin_does_not_wait_in_its_next_run(bench: Bench) -> None:
    store = bench.store()
    job_id = await suspect_of(bench, store)
    (got,) = await claim(store, begins=True)
    await store.attempts.release([(got.id, got.fence)])
    assert not await bench.client.hexists(bench.keys.job(job_id), "waits")
    (got,) = await claim(store, begins=True)
    assert await bench.client.hget(bench.keys.job(job_id), "waits") == str(got.fence).encode()
