"""How a failed attempt is followed by another: waits, exit codes, and what the job itself asks for."""

import asyncio
from typing import Any

import pytest

from tests.builders import claim, finish, new_job, reap_all, submit
from tests.servers import Bench
from workron.models import Outcome, Reason, Status
from workron.models.retry import RetryPolicy
from workron.redis import formats
from workron.store import Store
from workron.store.policy import Policy

SLOW = Policy(lease_ms=10_000, pass_ms=100, retry_ms=1000, retry_max_ms=3_600_000)


def failure(code: int = 1, **fields: Any) -> Outcome:
    return Outcome(Reason.EXIT_CODE, exit_code=code, **fields)


async def wait_ms(store: Store, outcome: Outcome, **fields: Any) -> int | None:
    """Let a job's attempt end so; return the wait before the next one, None if there is none."""
    (job_id,) = await submit(store, new_job(**fields))
    (got,) = await claim(store)
    await finish(store, got, outcome)
    job = await store.job(job_id)
    if job.status is Status.FAILED:
        return None
    assert (job.status, job.attempts) == (Status.SCHEDULED, 1)
    assert job.run_at_ms is not None
    now = await _now_ms(store)
    await store.cancel(job_id, None)
    return job.run_at_ms - now


async def _now_ms(store: Store) -> int:
    seconds, micros = await store.connection.call("TIME")
    return int(seconds) * 1000 + int(micros) // 1000


SURE = {"jitter": 0.0}


async def test_without_a_policy_the_settings_hold(bench: Bench) -> None:
    wait = await wait_ms(bench.store(SLOW), failure())
    assert wait is not None
    assert 300 < wait <= 1000


async def test_the_wait_is_the_delay_of_the_job(bench: Bench) -> None:
    wait = await wait_ms(bench.store(SLOW), failure(), retry=RetryPolicy(delay_ms=60_000, jitter=0.0))
    assert wait is not None
    assert 59_000 < wait <= 60_000


async def test_a_longer_delay_than_the_cap_of_all_is_meant_so(bench: Bench) -> None:
    wait = await wait_ms(bench.store(SLOW), failure(), retry=RetryPolicy(delay_ms=7_200_000, jitter=0.0))
    assert wait is not None
    assert 7_199_000 < wait <= 7_200_000


async def test_jitter_leaves_its_share_to_chance(bench: Bench) -> None:
    store = bench.store(SLOW)
    policy = RetryPolicy(delay_ms=100_000, jitter=1.0)
    waits = [await wait_ms(store, failure(), retry=policy) or 0 for _ in range(12)]
    assert len(set(waits)) > 6
    assert min(waits) < 90_000
    assert max(waits) <= 100_000


async def test_each_wait_is_factor_times_as_long_up_to_the_longest(bench: Bench) -> None:
    store = bench.store(SLOW)
    policy = RetryPolicy(delay_ms=10, factor=10, max_delay_ms=600, jitter=0.0)
    (job_id,) = await submit(store, new_job(max_attempts=5, retry=policy))
    for expected in (10, 100, 600, 600):
        (got,) = await claim(store, wait=True)
        before = await _now_ms(store)
        await finish(store, got, failure())
        after = await _now_ms(store)
        job = await store.job(job_id)
        assert job.run_at_ms is not None
        assert before + expected <= job.run_at_ms <= after + expected
    (got,) = await claim(store, wait=True)
    await finish(store, got, failure())
    assert (await store.job(job_id)).status is Status.FAILED


async def test_a_huge_factor_ends_at_the_cap(bench: Bench) -> None:
    store = bench.store(SLOW)
    (job_id,) = await submit(store, new_job(max_attempts=100, retry=RetryPolicy(100, 100.0, 5000, 0.0)))
    await bench.client.hset(bench.keys.job(job_id), "attempts", 98)
    (got,) = await claim(store)
    await finish(store, got, failure())
    assert ((await store.job(job_id)).run_at_ms or 0) <= await _now_ms(store) + 5000


@pytest.mark.parametrize(
    ("code", "only", "never", "again"),
    [
        (1, (1,), (), True),
        (2, (1,), (), False),
        (64, (1, "64-78"), (), True),
        (78, (1, "64-78"), (), True),
        (79, (1, "64-78"), (), False),
        (7, ("6-9",), (7,), False),
        (3, (), (3,), False),
        (3, (), ("4-255",), True),
        (25, (2, 5), (), False),
        (255, (), ("250-255",), False),
    ],
)
async def test_exit_codes_decide_whether_there_is_another_attempt(
    store: Store, code: int, only: tuple[int | str, ...], never: tuple[int | str, ...], again: bool
) -> None:
    wait = await wait_ms(store, failure(code), retry_on_exit=only, no_retry_on_exit=never)
    assert (wait is not None) is again


@pytest.mark.parametrize("reason", [Reason.SIGNAL, Reason.TIMEOUT, Reason.SPAWN])
async def test_ends_without_an_exit_code_are_tried_again_whatever_the_codes(store: Store, reason: Reason) -> None:
    outcome = Outcome(reason, exit_code=3 if reason is Reason.TIMEOUT else None, signal=9)
    assert await wait_ms(store, outcome, retry_on_exit=(1,), no_retry_on_exit=(3,)) is not None


async def test_a_lost_worker_is_no_reason_to_give_up(store: Store) -> None:
    (job_id,) = await submit(store, new_job(retry_on_exit=(1,)))
    await claim(store)
    assert await reap_all(store) == 1
    assert (await store.job(job_id)).status is Status.PENDING


async def test_a_final_exit_code_ends_the_job_with_attempts_left_and_a_retry_gives_it_all_of_them(store: Store) -> None:
    (job_id,) = await submit(store, new_job(max_attempts=5, no_retry_on_exit=(2,)))
    (got,) = await claim(store)
    await finish(store, got, failure(2))
    job = await store.job(job_id)
    assert (job.status, job.attempts, job.exit_code) == (Status.FAILED, 1, 2)
    await store.retry(job_id, None)
    (got,) = await claim(store)
    await finish(store, got, failure(1))
    assert (await store.job(job_id)).status is Status.SCHEDULED


async def test_the_wait_that_a_job_asks_for_is_given_exactly(bench: Bench) -> None:
    store = bench.store(SLOW)
    wait = await wait_ms(store, failure(75, retry_after_ms=30_000), retry=RetryPolicy(delay_ms=5, jitter=1.0))
    assert wait is not None
    assert 29_000 < wait <= 30_000


async def test_it_is_capped_and_counts_as_an_attempt(bench: Bench) -> None:
    store = bench.store(SLOW)
    day = failure(75, retry_after_ms=86_400_000)
    wait = await wait_ms(store, day)
    assert wait is not None
    assert 3_599_000 < wait <= 3_600_000
    wait = await wait_ms(store, day, retry=RetryPolicy(max_delay_ms=4000))
    assert wait is not None
    assert 3000 < wait <= 4000
    assert await wait_ms(store, day, max_attempts=1) is None


async def test_a_requested_delay_takes_precedence_over_retry_codes_but_not_over_final_ones(
    store: Store,
) -> None:
    asks = failure(75, retry_after_ms=10)
    assert await wait_ms(store, asks, retry_on_exit=(1,)) is not None
    assert await wait_ms(store, asks, no_retry_on_exit=("70-80",)) is None


async def test_a_cancelled_job_is_not_tried_again_however_much_it_asks(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    await store.cancel(job_id, None)
    await finish(store, got, failure(75, retry_after_ms=10))
    assert (await store.job(job_id)).status is Status.CANCELLED


async def test_a_job_that_is_to_be_tried_again_at_once_is(store: Store) -> None:
    (job_id,) = await submit(store, new_job(retry=RetryPolicy(delay_ms=0)))
    (got,) = await claim(store)
    await finish(store, got, failure())
    (again,) = await claim(store, wait=True)
    assert (again.id, again.attempt) == (job_id, 2)


async def test_a_repeated_report_of_a_failure_changes_nothing(store: Store) -> None:
    (job_id,) = await submit(store, new_job(retry=RetryPolicy(delay_ms=60_000)))
    (got,) = await claim(store)
    await finish(store, got, failure())
    before = await store.job(job_id)
    await asyncio.sleep(0.01)
    await finish(store, got, failure())
    assert await store.job(job_id) == before


@pytest.mark.damaged
async def test_a_damaged_policy_is_as_good_as_none(bench: Bench) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job())
    await bench.client.hset(bench.keys.job(job_id), "retry", "x y z|q|%")
    (got,) = await claim(store)
    await finish(store, got, failure())
    assert await bench.client.hget(bench.keys.job(job_id), "status") == b"scheduled"


async def test_the_policy_is_stored_in_one_field_only_where_there_is_one(bench: Bench) -> None:
    store = bench.store()
    policy = RetryPolicy(1500, 1.5, 60_000, 0.25)
    plain, own = await submit(
        store, new_job(), new_job(retry=policy, retry_on_exit=(1, "64-78"), no_retry_on_exit=(2,))
    )
    assert await bench.client.hget(bench.keys.job(plain), "retry") is None
    assert await bench.client.hget(bench.keys.job(own), "retry") == b"1500 1.5 60000 0.25|1,64-78|2"
    job = await store.job(own)
    assert (job.retry, job.retry_on_exit, job.no_retry_on_exit) == (policy, (1, "64-78"), (2,))
    assert (await store.job(plain)).retry is None


@pytest.mark.parametrize(
    "policy", [None, RetryPolicy(0), RetryPolicy(None, 1.0), RetryPolicy(3 * 10**11, 99.5, 1, 1.0)]
)
def test_what_is_packed_is_unpacked(policy: RetryPolicy | None) -> None:
    assert formats.read_retry(formats.retry(policy, (1, "2-5"), ())) == (policy, (1, "2-5"), ())
