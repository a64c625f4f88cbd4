"""How many jobs may wait: the limit holds whoever submits, in whatever way, and only submissions are refused."""

import asyncio
from typing import Any

import pytest

from tests.builders import after, claim, finish, jobs, new_job, reap_all, submit
from tests.queue_limits import limit_queue, limited, refused
from tests.servers import Bench
from workron import ids
from workron.errors import QueueFull, StoreUnavailable, UnknownDependency
from workron.models import Idempotency, NewJob, Outcome, Reason, Status
from workron.settings import Settings
from workron.store import Store
from workron.store.policy import Policy

FAILURE = Outcome(Reason.EXIT_CODE, exit_code=1, error="exit code 1")
KEY = Idempotency("key", "once", "print")


async def waiting(store: Store, queue: str = "default") -> int:
    found = {state.name: state.counts for state in await store.queues()}
    counts = found.get(queue, {})
    return sum(counts.get(status, 0) for status in (Status.PENDING, Status.SCHEDULED, Status.BLOCKED))


async def test_a_submission_beyond_the_limit_is_refused_and_names_queue_limit_and_waiting_jobs(store: Store) -> None:
    await limited(store, 2)
    await submit(store, *jobs(2))
    error = await refused(store, new_job())
    assert (error.queue, error.limit, error.waiting, error.size) == ("default", 2, 2, 1)
    assert "queue default is full: 2 jobs wait, the limit is 2" in str(error)
    assert await waiting(store) == 2


async def test_many_jobs_at_once_are_stored_whole_or_not_at_all(store: Store) -> None:
    await limited(store, 5)
    await submit(store, *jobs(3))
    many = jobs(3)
    await refused(store, *many)
    assert await store.jobs([job.id for job in many]) == [None] * 3
    await submit(store, *jobs(2))
    assert await waiting(store) == 5


async def test_a_workflow_is_refused_if_one_of_its_queues_is_full(store: Store) -> None:
    await limited(store, 1, "narrow")
    first, second, third = jobs(3)
    first.queue = second.queue = "narrow"
    third.depends_on = after(first.id)
    error = await refused(store, first, second, third, as_workflow=True)
    assert (error.queue, error.size) == ("narrow", 2)
    assert await store.jobs([first.id, third.id]) == [None, None]


async def test_all_that_waits_counts(store: Store) -> None:
    await limited(store, 3)
    (parent,) = await submit(store, new_job())
    await submit(store, new_job(depends_on=after(parent)))
    await submit(store, new_job(delay_ms=60_000))
    await refused(store, new_job(delay_ms=60_000))
    await refused(store, new_job(depends_on=after(parent)))


async def test_what_runs_or_has_ended_does_not_count(store: Store) -> None:
    await limited(store, 1)
    await submit(store, new_job())
    (got,) = await claim(store)
    await submit(store, new_job())
    await refused(store, new_job())
    await finish(store, got)
    (other,) = await claim(store)
    await submit(store, new_job())
    assert other.id != got.id


async def test_a_limit_of_0_closes_a_queue(store: Store) -> None:
    await limited(store, 0)
    await refused(store, new_job())
    await submit(store, new_job(queue="other"))


async def test_many_servers_at_once_never_go_over_the_limit(bench: Bench) -> None:
    stores = [bench.store() for _ in range(4)]
    await limited(stores[0], 25)
    single = [one.submit([new_job()]) for one in stores for _ in range(10)]
    several = [one.submit(jobs(4)) for one in stores for _ in range(5)]
    answers = await asyncio.gather(*single, *several, return_exceptions=True)
    stored = sum(len(one.ids) for one in answers if not isinstance(one, BaseException))
    assert {type(one) for one in answers if isinstance(one, BaseException)} == {QueueFull}
    assert await waiting(stores[0]) == stored == 25


async def test_submissions_of_one_call_are_judged_one_by_one(store: Store) -> None:
    """They travel together: the one that is too large is refused, and the small one behind it fits."""
    await limited(store, 3)
    calls = 0
    call = store.scripts.job_submit

    async def counted(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        return await call(*args)

    store.scripts.job_submit = counted  # type: ignore[method-assign]
    many = [store.submit(jobs(size)) for size in (1, 1, 3, 1, 1)]
    answers = await asyncio.gather(*many, return_exceptions=True)
    assert [isinstance(one, QueueFull) for one in answers] == [False, False, True, False, True]
    assert calls <= 2
    assert await waiting(store) == 3


async def test_submissions_of_one_call_are_judged_one_by_one_by_the_total(store: Store) -> None:
    await store.limit_all(Settings(max_pending_total=3))
    many = [store.submit([new_job(queue=queue)]) for queue in "abcde"]
    answers = await asyncio.gather(*many, return_exceptions=True)
    assert [isinstance(one, QueueFull) for one in answers] == [False] * 3 + [True] * 2


@pytest.mark.parametrize("size", [2, 1_000])
async def test_a_repeat_of_what_is_stored_is_answered_although_the_queue_is_full(store: Store, size: int) -> None:
    await limited(store, size)
    first = await store.submit(jobs(size), idempotency=KEY)
    again = await store.submit(jobs(size), idempotency=KEY)
    assert (again.repeated, again.ids) == (True, first.ids)
    many = jobs(size)
    await refused(store, *many)


async def test_work_that_comes_back_is_never_refused(bench: Bench) -> None:
    store = bench.store(Policy(lease_ms=200, pass_ms=100, retry_ms=1, retry_max_ms=1))
    await limited(store, 3)
    (parent,) = await submit(store, new_job(max_attempts=1))
    await submit(store, new_job(max_attempts=2), new_job())
    failing, failed, lost = await claim(store, limit=3)
    await submit(store, new_job(depends_on=after(parent)), *jobs(2, delay_ms=1))
    await refused(store, new_job())
    await store.attempts.release([(lost.id, lost.fence)])  # given back by its worker
    await finish(store, failed, FAILURE)  # another attempt is due
    await finish(store, failing, FAILURE)
    await store.retry(parent)  # an operator's retry, which re-arms the dependent
    assert await waiting(store) == 6
    assert await claim(store, limit=2, wait=True)
    await reap_all(store)
    assert await waiting(store) > 3


async def test_a_full_queue_has_room_again_as_jobs_start_or_are_cancelled(store: Store) -> None:
    await limited(store, 2)
    first, _ = await submit(store, *jobs(2))
    await refused(store, new_job())
    await store.cancel(first)
    await submit(store, new_job())
    await claim(store)
    await submit(store, new_job())
    await refused(store, new_job())


async def test_a_limit_can_be_raised_and_lifted(store: Store) -> None:
    await limited(store, 1)
    await submit(store, new_job())
    assert (await limit_queue(store, "default", 2)).max_pending == 2
    await submit(store, new_job())
    await refused(store, new_job())
    assert (await limit_queue(store, "default", None)).max_pending is None
    await submit(store, new_job())


async def test_the_limit_for_all_queues_holds_where_a_queue_has_none_of_its_own(bench: Bench) -> None:
    store, other = bench.store(), bench.store()
    await store.limit_all(Settings(max_pending=1))
    await limited(store, 2, "wide")
    await submit(other, new_job(), *jobs(2, queue="wide"))
    assert (await refused(other, new_job())).limit == 1
    assert (await refused(other, new_job(queue="wide"))).limit == 2
    assert {queue.name: queue.max_pending for queue in await other.queues()} == {"default": 1, "wide": 2}


async def test_a_server_without_settings_leaves_the_limits_and_none_lifts_them(store: Store) -> None:
    await store.limit_all(Settings(max_pending=1, max_pending_total=1))
    await store.limit_all(Settings())
    await submit(store, new_job())
    assert (await refused(store, new_job())).queue == "default"
    await store.limit_all(Settings(max_pending="none"))
    assert (await refused(store, new_job())).queue is None
    await store.limit_all(Settings(max_pending_total="none"))
    await submit(store, new_job())


@pytest.mark.parametrize("size", [1, 600])
async def test_the_total_counts_all_queues_together(store: Store, size: int) -> None:
    await store.limit_all(Settings(max_pending_total=2 * size))
    await submit(store, *jobs(size, queue="a"))
    await submit(store, *jobs(size, queue="b"))
    error = await refused(store, *jobs(size, queue="c"))
    assert (error.queue, error.limit, error.waiting, error.size) == (None, 2 * size, 2 * size, size)
    await claim(store, queues=["a"], limit=1)
    await submit(store, new_job(queue="c"))


async def test_a_large_submission_is_refused_before_any_of_it_is_stored(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await limited(bench.store(), 999)
    chunks: list[bytes] = []
    stage = store.scripts.submission_stage

    async def seen(**args: Any) -> Any:
        reply = await stage(**args)
        chunks.append(reply[0])
        return reply

    monkeypatch.setattr(store.scripts, "submission_stage", seen)
    error = await refused(store, *jobs(1_000))
    assert (error.size, error.waiting) == (1_000, 0)
    assert b"STAGED" not in chunks
    assert [name async for name in bench.client.scan_iter(f"{bench.keys.prefix}job:*")] == []
    await submit(store, *jobs(999))


async def test_what_a_large_submission_will_need_is_reserved_from_its_first_chunk_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = await limited(bench.store(), 1_001), bench.store()
    stage = store.scripts.submission_stage
    answers: list[object] = []

    async def between(**args: Any) -> Any:
        reply = await stage(**args)
        if args["chunk"] == 0:
            answers.append(await other.submit([new_job()]))
            answers.append(await refused(other, new_job()))
            answers.append(await refused(other, *jobs(500)))
        return reply

    monkeypatch.setattr(store.scripts, "submission_stage", between)
    await store.submit(jobs(1_000))
    assert len(answers) == 3
    assert await waiting(store) == 1_001
    assert int(await bench.client.hget(bench.keys.queue("default"), "reserved")) == 0
    await refused(other, new_job())


@pytest.mark.parametrize("fails", ["unknown dependency", "outage"])
async def test_a_large_submission_that_is_given_up_gives_its_room_back(
    bench: Bench, fails: str, monkeypatch: pytest.MonkeyPatch, wait_until: Any
) -> None:
    store = await limited(bench.store(), 1_000)
    stage = store.scripts.submission_stage

    async def failing(**args: Any) -> Any:
        if args["chunk"] == 2:
            if fails == "outage":
                raise StoreUnavailable("away")
            return [b"UNKNOWN", b"x"]
        return await stage(**args)

    with monkeypatch.context() as patch:
        patch.setattr(store.scripts, "submission_stage", failing)
        with pytest.raises((StoreUnavailable, UnknownDependency)):
            await store.submit(jobs(1_000))

    async def there_is_room() -> bool:
        return await bench.client.hget(bench.keys.meta, "waiting") == b"0"

    await wait_until(there_is_room)
    await submit(store, *jobs(1_000))


async def test_room_of_a_submitter_that_died_is_given_back_by_the_reaper(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = await limited(bench.store(), 1_000), bench.store()

    class Died(BaseException):
        pass

    async def dies(**_: Any) -> Any:
        raise Died

    async def nothing(_: str) -> None:
        pass

    monkeypatch.setattr(store.scripts, "submission_open", dies)
    monkeypatch.setattr(store.submitter, "abort_quietly", nothing)
    with pytest.raises(Died):
        await store.submit(jobs(1_000))
    await refused(other, new_job())
    monkeypatch.setattr("workron.store.submit.ABANDONED_MS", 0)
    await other.maintenance.tidy()
    await submit(other, *jobs(1_000))


async def test_jobs_cancelled_before_they_were_admitted_keep_no_room(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = await limited(bench.store(), 1_000), bench.store()

    async def dies(_: str) -> None:
        pass

    monkeypatch.setattr(store.submitter, "admit_quietly", dies)
    many = jobs(1_000)
    await store.submit(many)
    await other.cancel(many[900].id)
    await other.maintenance.tidy()
    assert await waiting(other) == 999
    await submit(other, new_job())
    await refused(other, new_job())


@pytest.mark.large
async def test_a_large_submission_over_very_many_queues_asks_for_the_room_of_each(store: Store) -> None:
    """More queues than one call may look at: the last ones ask with a later chunk."""

    def scattered() -> list[NewJob]:
        return [new_job(id=job_id, queue=f"q{number}") for number, job_id in enumerate(ids.new_ids(900))]

    await limited(store, 0, "q899")
    assert (await refused(store, *scattered())).queue == "q899"
    assert [queue.name for queue in await store.queues()] == ["q899"]
    await limit_queue(store, "q899", 1)
    await store.submit(scattered())
    assert len(await store.queues()) == 900
