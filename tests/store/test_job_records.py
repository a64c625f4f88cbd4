"""What the moves of a job write, and what they leave as it is."""

import pytest

from tests.builders import after, claim, finish, new_job, reap_all, submit
from tests.servers import Bench
from tests.unique_keys import holder, unique
from workron.models import Cancelled, Outcome, OutputPatch, Reason, Status, Verdict
from workron.store import Store


async def test_each_move_of_a_job_is_an_event(bench: Bench) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    await finish(store, got)
    events = [fields for _, fields in await bench.client.xrange(bench.keys.events)]
    assert events == [{status: job_id.encode()} for status in (b"pending", b"running", b"done")]


async def test_a_queue_where_no_job_is_pending_is_not_listed_as_one(bench: Bench) -> None:
    store = bench.store()
    await submit(store, new_job(delay_ms=60_000, queue="later"), new_job(queue="now"))
    assert await bench.client.zrange(bench.keys.pending_queues, 0, -1) == [b"now"]


@pytest.mark.damaged
async def test_a_queue_that_has_lost_its_list_is_still_listed_as_one_with_pending_jobs(bench: Bench) -> None:
    """A further job does not list it again: no reaper would make up for a lost wake-up there."""
    store = bench.store()
    await submit(store, new_job())
    await bench.client.delete(bench.keys.pending("default", 5))
    await store.maintenance.promote(["default"])
    await submit(store, new_job())
    assert await bench.client.zrange(bench.keys.pending_queues, 0, -1) == [b"default"]


async def test_a_job_that_has_ended_keeps_no_empty_fields(bench: Bench) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job(max_attempts=1))
    (got,) = await claim(store)
    await finish(store, got, Outcome(Reason.EXIT_CODE, exit_code=1))
    stored = await bench.client.hgetall(bench.keys.job(job_id))
    assert stored[b"exit_code"] == b"1"
    assert [name for name, value in stored.items() if not value] == []


async def test_a_result_that_says_nothing_of_progress_leaves_what_was_reported(store: Store) -> None:
    (job_id,) = await submit(store, new_job(max_attempts=1))
    (got,) = await claim(store)
    await store.attempts.write_output([(got.id, got.fence, OutputPatch(0, b"", 0, progress="half"))])
    await finish(store, got, Outcome(Reason.EXIT_CODE, exit_code=1))
    job = await store.job(job_id)
    assert (job.status, job.progress) == (Status.FAILED, "half")


async def test_a_release_after_the_result_gives_nothing_back(store: Store) -> None:
    """The job would run once more, although it is done."""
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    await finish(store, got)
    assert await store.attempts.release([(got.id, got.fence)]) == [None]
    assert (await store.job(job_id)).status is Status.DONE


async def test_a_release_of_a_job_that_is_gone_records_no_damage(store: Store, bench: Bench) -> None:
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    await finish(store, got)
    await store.delete(job_id)
    assert await store.attempts.release([(got.id, got.fence)]) == [None]
    assert not await bench.client.exists(bench.keys.quarantine)


async def test_a_job_that_is_skipped_from_the_beginning_takes_no_unique_key(store: Store, bench: Bench) -> None:
    (parent,) = await submit(store, new_job())
    await store.cancel(parent)
    (skipped,) = await submit(store, new_job(unique=unique(), depends_on=after(parent)))
    assert (await store.job(skipped)).status is Status.SKIPPED
    assert await holder(bench) is None


async def test_a_job_that_is_replaced_within_its_own_submission_stands_in_no_list(bench: Bench) -> None:
    """Should it run once more, it would have its old place."""
    store = bench.store()
    _, second = await submit(store, *(new_job(unique=unique("replace")) for _ in range(2)))
    assert await bench.client.lrange(bench.keys.pending("default", 5), 0, -1) == [second.encode()]


async def test_a_late_repeat_of_a_result_was_refused_once_its_job_had_been_retried(store: Store) -> None:
    """The worker would take its attempt for a lost one."""
    (job_id,) = await submit(store, new_job(max_attempts=1))
    (got,) = await claim(store)
    await finish(store, got, Outcome(Reason.EXIT_CODE, exit_code=1))
    await store.retry(job_id)
    again = await finish(store, got, Outcome(Reason.EXIT_CODE, exit_code=1))
    assert (again.verdict, again.status) == (Verdict.RECORDED, Status.FAILED)
    assert (await store.job(job_id)).status is Status.PENDING


async def test_a_job_with_a_unique_key_and_the_usual_number_of_attempts_was_stuck_when_its_worker_was_lost(
    store: Store,
) -> None:
    (job_id,) = await submit(store, new_job(unique=unique()))
    await claim(store)
    assert await reap_all(store) == 1
    assert (await store.job(job_id)).status is Status.PENDING


async def test_a_second_cancel_of_a_cancelled_job_changes_nothing(store: Store, bench: Bench) -> None:
    (job_id,) = await submit(store, new_job())

    async def stored() -> tuple[object, object]:
        return await bench.client.hgetall(bench.keys.job(job_id)), await bench.client.xlen(bench.keys.events)

    await store.cancel(job_id)
    before = await stored()
    assert await store.cancel(job_id) is Cancelled.CANCELLED
    assert await stored() == before
