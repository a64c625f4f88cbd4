"""Chapter 1: the life of a job, from submission to result. Read the chapters in order; each test is one sentence."""

import pytest

from tests.builders import SUCCESS, WORKER, claim, finish, new_job, reap_all, submit
from tests.servers import Bench
from workron.errors import NotFound
from workron.models import Beat, Outcome, OutputPatch, Reason, Status, Verdict
from workron.store import Store

FAILURE = Outcome(Reason.EXIT_CODE, exit_code=3, error="exit code 3")


async def test_a_submitted_job_is_pending_until_a_worker_claims_it(store: Store) -> None:
    job = new_job(command="echo hello")
    await store.submit([job])
    assert (await store.job(job.id)).status is Status.PENDING
    (claimed,) = await claim(store, worker="worker-1")
    assert (claimed.id, claimed.command, claimed.attempt) == (job.id, "echo hello", 1)
    running = await store.job(job.id)
    assert (running.status, running.worker) == (Status.RUNNING, "worker-1")


async def test_a_job_is_a_hash_that_redis_cli_shows(bench: Bench) -> None:
    (job_id,) = await submit(bench.store(), new_job(command="echo hello", queue="mail"))
    fields = await bench.client.hgetall(f"workron:{{{bench.namespace}}}:job:{job_id}")
    assert (fields[b"status"], fields[b"command"], fields[b"queue"]) == (b"pending", b"echo hello", b"mail")


async def test_no_two_workers_get_the_same_job(store: Store) -> None:
    await submit(store, new_job(), new_job(), new_job())
    claimed = [*await claim(store, worker="worker-1", limit=2), *await claim(store, worker="worker-2", limit=2)]
    assert len({one.id for one in claimed}) == len(claimed) == 3


async def test_higher_priorities_come_first_and_equal_ones_in_their_order(store: Store) -> None:
    first, second, urgent = await submit(store, new_job(), new_job(), new_job(priority=9))
    assert [one.id for one in await claim(store, limit=3)] == [urgent, first, second]


async def test_a_result_ends_the_job(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    (claimed,) = await claim(store)
    finished = await finish(store, claimed, Outcome(None, exit_code=0, result='{"rows": 7}'))
    assert (finished.verdict, finished.status) == (Verdict.ACCEPTED, Status.DONE)
    job = await store.job(job_id)
    assert (job.exit_code, job.result) == (0, {"rows": 7})


async def test_a_failed_job_is_retried_until_its_attempts_are_used_up(store: Store) -> None:
    (job_id,) = await submit(store, new_job(max_attempts=2))
    (first,) = await claim(store)
    assert (await finish(store, first, FAILURE)).status is Status.SCHEDULED
    (second,) = await claim(store, wait=True)  # after a short delay, which grows with each attempt
    assert (await finish(store, second, FAILURE)).status is Status.FAILED
    job = await store.job(job_id)
    assert (job.attempts, job.reason, job.exit_code) == (2, Reason.EXIT_CODE, 3)


async def test_heartbeats_keep_a_job_and_silence_gives_it_to_another_worker(store: Store) -> None:
    await submit(store, new_job())
    (first,) = await claim(store, worker="worker-1")
    beats = await store.attempts.heartbeat(WORKER, [(first.id, first.fence)])
    assert beats.attempts == {first.fence: Beat.OK}
    await reap_all(store)  # the lease has ended without another heartbeat
    (second,) = await claim(store, worker="worker-2")
    assert (second.id, second.attempt) == (first.id, 2)


async def test_a_worker_that_lost_its_lease_cannot_report_a_result(store: Store) -> None:
    """Each claim has a fence, a number that only grows. A report with an old fence is refused."""
    (job_id,) = await submit(store, new_job())
    (first,) = await claim(store, worker="worker-1")
    await reap_all(store)
    (second,) = await claim(store, worker="worker-2")
    assert second.fence > first.fence
    assert (await finish(store, first)).verdict is Verdict.LEASE_LOST
    assert (await finish(store, second)).verdict is Verdict.ACCEPTED
    assert (await store.job(job_id)).status is Status.DONE


async def test_a_repeated_report_changes_nothing(store: Store) -> None:
    """A worker repeats a report if it received no answer. The first one counts."""
    await submit(store, new_job())
    (claimed,) = await claim(store)
    for outcome, verdict in ((SUCCESS, Verdict.ACCEPTED), (FAILURE, Verdict.RECORDED)):
        finished = await finish(store, claimed, outcome)
        assert (finished.verdict, finished.status) == (verdict, Status.DONE)


async def test_a_cancel_ends_a_waiting_job_at_once_and_asks_the_worker_of_a_running_one(store: Store) -> None:
    running, waiting = await submit(store, new_job(), new_job())
    (claimed,) = await claim(store)
    await store.cancel(waiting)
    await store.cancel(running)
    assert (await store.job(waiting)).status is Status.CANCELLED
    beats = await store.attempts.heartbeat(WORKER, [(claimed.id, claimed.fence)])
    assert beats.attempts == {claimed.fence: Beat.CANCEL}
    assert (await finish(store, claimed, Outcome(Reason.CANCELLED))).status is Status.CANCELLED


async def test_output_is_stored_while_the_command_runs(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    (claimed,) = await claim(store)
    await store.attempts.write_output([(claimed.id, claimed.fence, OutputPatch(0, b"first line\n", total=11))])
    assert (await store.output(job_id)).head == b"first line\n"


async def test_a_deleted_job_leaves_nothing_behind(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    await store.cancel(job_id)
    await store.delete(job_id)
    with pytest.raises(NotFound):
        await store.job(job_id)
