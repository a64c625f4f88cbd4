"""Reports that name no fence: `safe` counts where only one attempt can be meant, `always` means the last one."""

import pytest

from tests.builders import SUCCESS, claim, new_job, reap_all, submit
from tests.servers import Bench
from tests.workflows import FAILURE
from workron.models import Beat, Claim, Outcome, Result, Status, Unfenced, Verdict
from workron.store import Store


async def report(store: Store, job_id: str, fence: int | Unfenced, outcome: Outcome = SUCCESS) -> Verdict:
    exchanged = await store.attempts.finish([Result(job_id, fence, outcome)], worker="w1")
    return exchanged.finished[0].verdict


async def second_attempt(store: Store, job_id: str, how: str) -> Claim:
    """Claim a job again whose first attempt was given back or lost."""
    (first,) = await claim(store)
    if how == "released":
        await store.attempts.release([(job_id, first.fence)])
    else:
        await reap_all(store)
    (second,) = await claim(store)
    return second


@pytest.mark.parametrize("fence", ["safe", "always"])
async def test_a_result_without_a_fence_ends_the_only_attempt_and_may_come_twice(store: Store, fence: Unfenced) -> None:
    (job_id,) = await submit(store, new_job())
    await claim(store)
    assert await report(store, job_id, fence) is Verdict.ACCEPTED
    assert await report(store, job_id, fence) is Verdict.RECORDED
    assert (await store.job(job_id)).status is Status.DONE


@pytest.mark.parametrize("fence", ["safe", "always"])
async def test_a_failure_without_a_fence_that_comes_twice_costs_one_attempt(store: Store, fence: Unfenced) -> None:
    (job_id,) = await submit(store, new_job(max_attempts=3))
    await claim(store)
    assert await report(store, job_id, fence, FAILURE) is Verdict.ACCEPTED
    assert await report(store, job_id, fence, FAILURE) is Verdict.RECORDED
    assert (await store.job(job_id)).attempts == 1


@pytest.mark.parametrize("how", ["released", "lost"])
async def test_after_an_attempt_that_was_given_back_or_lost_safe_means_none(store: Store, how: str) -> None:
    """Its worker may be the one that reports: the result would be the other attempt's."""
    (job_id,) = await submit(store, new_job())
    await second_attempt(store, job_id, how)
    assert await report(store, job_id, "safe") is Verdict.LEASE_LOST
    assert await store.attempts.release([(job_id, "safe")]) == [None]
    assert (await store.job(job_id)).status is Status.RUNNING


@pytest.mark.parametrize("how", ["released", "lost"])
async def test_always_means_the_last_attempt_whatever_was_before_it(store: Store, how: str) -> None:
    (job_id,) = await submit(store, new_job())
    await second_attempt(store, job_id, how)
    assert await report(store, job_id, "always") is Verdict.ACCEPTED
    assert (await store.job(job_id)).status is Status.DONE


@pytest.mark.parametrize(("fence", "mark"), [("safe", None), ("always", b"1")])
async def test_only_a_job_that_was_reported_as_always_is_marked(
    store: Store, bench: Bench, fence: Unfenced, mark: bytes | None
) -> None:
    reported, ended = await submit(store, new_job(), new_job())
    _, other = await claim(store, limit=2)
    assert await report(store, ended, other.fence) is Verdict.ACCEPTED
    for job_id in (reported, ended):
        await report(store, job_id, fence)
    marks = [await bench.client.hget(bench.keys.job(job_id), "unfenced") for job_id in (reported, ended)]
    assert marks == [mark, None]


async def test_reports_without_a_fence_of_a_job_that_is_gone_mean_no_attempt(store: Store, bench: Bench) -> None:
    gone = new_job().id
    fences: tuple[Unfenced, ...] = ("safe", "always")
    for fence in fences:
        assert await report(store, gone, fence) is Verdict.UNKNOWN
        assert await store.attempts.release([(gone, fence)]) == [None]
    assert not await bench.client.exists(bench.keys.job(gone), bench.keys.quarantine)


async def test_a_heartbeat_without_a_fence_keeps_the_lease_of_the_only_attempt(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    assert await store.attempts.beat(job_id, "safe") is Beat.OK
    await store.attempts.release([(job_id, got.fence)])
    await claim(store)
    assert await store.attempts.beat(job_id, "safe") is Beat.LOST
