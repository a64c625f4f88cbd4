"""One worker, two sources: straight from Redis and over HTTP it does the same."""

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from tests.builders import new_job, submit
from tests.conftest import WaitUntil
from tests.servers import Bench
from tests.workers.worker_sources import HASTY, PATIENT, Place
from workers.http_source import HttpSource
from workers.limits import Limits
from workron.models import Claimed, ClaimRequest, Moment, Reason, Status
from workron.models.workers import Drain, WorkerStatus
from workron.runtime.async_tools import end


async def test_a_job_runs_with_its_environment_and_its_output_is_kept(place: Place, wait_until: WaitUntil) -> None:
    async with place.worker() as worker:
        env = {"NAME": "wörld"}
        (job_id,) = await submit(
            place.store, new_job(command='echo "hello $NAME $WORKRON_ATTEMPT"; pwd', env=env, cwd="/")
        )
        await wait_until(place.is_(job_id, Status.DONE))
        stored = await place.store.job(job_id)
        assert (stored.exit_code, stored.attempts, stored.worker) == (0, 1, worker.id)
        assert (await place.store.output(job_id)).head == "hello wörld 1\n/\n".encode()


async def test_an_argv_runs_without_a_shell(place: Place, wait_until: WaitUntil) -> None:
    async with place.worker():
        (job_id,) = await submit(place.store, new_job(argv=("printf", "%s|", "$HOME", "a b", "")))
        await wait_until(place.is_(job_id, Status.DONE))
        assert (await place.store.output(job_id)).head == b"$HOME|a b||"


async def test_many_jobs_run_each_once(place: Place, wait_until: WaitUntil) -> None:
    async with place.worker(slots=8):
        ids = await submit(place.store, *(new_job(command=f"echo {n}") for n in range(60)))

        async def all_done() -> bool:
            return all(job is not None and job.status is Status.DONE for job in await place.store.jobs(ids))

        await wait_until(all_done)
        assert {job.attempts for job in await place.store.jobs(ids) if job} == {1}


async def test_an_idle_worker_starts_what_is_submitted_at_once(place: Place, wait_until: WaitUntil) -> None:
    async with place.worker():
        await wait_until(place.is_parked)
        await asyncio.sleep(0.2)  # a long poll has to reach the server
        delays = []
        for _ in range(5):
            submitted_at = time.monotonic()
            (job_id,) = await submit(place.store, new_job())
            await wait_until(place.is_(job_id, Status.DONE))
            delays.append(time.monotonic() - submitted_at)
        assert sorted(delays)[2] < 0.5


async def test_output_can_be_followed_while_the_command_runs(
    place: Place, wait_until: WaitUntil, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    async with place.worker():
        (job_id,) = await submit(
            place.store, new_job(command=f"echo one; until [ -e {go} ]; do sleep 0.05; done; echo two")
        )

        async def first_line() -> bool:
            return (await place.store.output(job_id)).head == b"one\n"

        await wait_until(first_line)
        assert await place.status(job_id) is Status.RUNNING
        go.touch()
        await wait_until(place.is_(job_id, Status.DONE))
        assert (await place.store.output(job_id)).head == b"one\ntwo\n"


async def test_long_output_keeps_its_head_and_its_tail(place: Place, wait_until: WaitUntil) -> None:
    async with place.worker():
        (job_id,) = await submit(
            place.store, new_job(command="head -c 300000 /dev/zero | tr '\\0' a; sleep 1; printf end")
        )
        await wait_until(place.is_(job_id, Status.DONE))
        output = await place.store.output(job_id)
        assert (len(output.head), output.total, output.tail[-4:]) == (131072, 300003, b"aend")


async def test_a_cancel_stops_the_command_before_the_next_heartbeat(place: Place, wait_until: WaitUntil) -> None:
    async with place.worker(heartbeat=4.9) as worker:
        (job_id,) = await submit(place.store, new_job(command="sleep 60"))
        await wait_until(lambda: worker.held)
        await asyncio.sleep(0.3)
        started = time.monotonic()
        await place.store.cancel(job_id)
        await wait_until(place.is_(job_id, Status.CANCELLED))
        assert time.monotonic() - started < 3


async def test_a_deadline_stops_the_command_and_its_exit_code_is_kept(place: Place, wait_until: WaitUntil) -> None:
    async with place.worker(heartbeat=4.9):
        late = new_job(command="trap 'exit 5' TERM; sleep 60 & wait", deadline=Moment(after_ms=3_000))
        (job_id,) = await submit(place.store, late)
        await wait_until(place.is_(job_id, Status.RUNNING))
        while await place.status(job_id) is Status.RUNNING:
            await place.store.maintenance.promote()  # as the reaper does
            await asyncio.sleep(0.05)
        job = await place.store.job(job_id)
        assert (job.status, job.reason, job.exit_code) == (Status.FAILED, Reason.EXPIRED, 5)
        assert job.finished_at_ms is not None
        assert job.finished_at_ms - job.created_at_ms < 3_000 + 1_700  # the next heartbeat comes after 4.9 s
        assert job.error == "expired: not done by its deadline"


async def test_a_timeout_stops_the_command(place: Place, wait_until: WaitUntil) -> None:
    async with place.worker():
        (job_id,) = await submit(place.store, new_job(command="sleep 60", timeout_ms=200, max_attempts=1))
        await wait_until(place.is_(job_id, Status.FAILED))
        assert (await place.store.job(job_id)).reason is Reason.TIMEOUT


async def test_the_scheduler_decides_on_the_retry(place: Place, wait_until: WaitUntil) -> None:
    async with place.worker():
        (job_id,) = await submit(place.store, new_job(command="echo $WORKRON_ATTEMPT; exit 3", max_attempts=2))
        await wait_until(place.is_(job_id, Status.FAILED))
        job = await place.store.job(job_id)
        assert (job.attempts, job.exit_code, job.reason) == (2, 3, Reason.EXIT_CODE)
        assert (await place.store.output(job_id)).head == b"2\n"


async def test_a_command_that_cannot_start_is_reported(place: Place, wait_until: WaitUntil) -> None:
    async with place.worker():
        (job_id,) = await submit(place.store, new_job(argv=("/no/such/program",), max_attempts=1))
        await wait_until(place.is_(job_id, Status.FAILED))
        job = await place.store.job(job_id)
        assert job.reason is Reason.SPAWN
        assert "/no/such/program" in (job.error or "")


async def test_heartbeats_keep_a_job_longer_than_its_lease(place: Place, wait_until: WaitUntil) -> None:
    async with place.worker(HASTY):
        (job_id,) = await submit(place.store, new_job(command="sleep 3"))

        async def ended() -> bool:
            await place.store.maintenance.reap()
            return await place.status(job_id) is Status.DONE

        await wait_until(ended)
        assert (await place.store.job(job_id)).attempts == 1


async def test_a_command_whose_lease_was_lost_is_killed(place: Place, wait_until: WaitUntil, tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    async with place.worker(HASTY) as worker:
        command = f"while :; do touch {alive}; sleep 0.05; done"
        (job_id,) = await submit(place.store, new_job(command=command, queue="default"))
        await wait_until(alive.exists)
        (attempt,) = worker.held.values()
        worker._stopping._begun = True  # so that it does not take the job anew
        await place.store.attempts.release([(job_id, attempt.claim.fence)])
        await wait_until(attempt.task.done)
        alive.unlink()
        await asyncio.sleep(0.2)
        assert not alive.exists()
        assert await place.status(job_id) is Status.PENDING


async def test_a_draining_worker_lets_commands_finish_and_gives_the_others_back(
    place: Place, wait_until: WaitUntil, tmp_path: Path
) -> None:
    async with place.worker(drain_timeout=2.0) as worker:
        until_told = f"touch {tmp_path}/runs; until [ -e {tmp_path}/told ]; do sleep 0.02; done"
        short, long = await submit(place.store, new_job(command=until_told), new_job(command="sleep 60"))
        await wait_until(lambda: len(worker.held) == 2 and (tmp_path / "runs").exists())
        worker.stop()
        (tmp_path / "told").touch()
        await wait_until(place.is_(short, Status.DONE))
        await wait_until(place.is_(long, Status.PENDING))
        assert (await place.store.job(long)).attempts == 0
        (late,) = await submit(place.store, new_job())
        assert await place.status(late) is Status.PENDING


async def test_a_worker_that_went_idle_leaves_no_claim_behind(place: Place, wait_until: WaitUntil) -> None:
    async with place.worker():
        await wait_until(place.is_parked)
        await asyncio.sleep(0.2)
    (job_id,) = await submit(place.store, new_job())
    assert await place.status(job_id) is Status.PENDING


async def test_a_worker_that_ends_its_wait_hangs_up_and_leaves_nothing(
    valkey_url: str, namespace: str, tmp_path: Path, wait_until: WaitUntil
) -> None:
    bench = Bench("valkey", valkey_url, namespace)
    async with AsyncExitStack() as stack:
        source = await Place("http", bench, tmp_path).source(PATIENT, stack)
        assert isinstance(source, HttpSource)
        request = ClaimRequest("w1", ("default",), 1, "boot:1", 20_000)
        assert (await source.exchange("w1", (), request)).claimed.parked
        waiting = asyncio.create_task(source.wait(request))

        async def parked() -> bool:
            return bool(await bench.client.zcard(bench.keys.parked("default")))

        await wait_until(parked)
        await end([waiting])
        assert (await source.exchange("w1", (), replace(request, limit=0, park_ms=0))).claimed == Claimed()

        async def nothing_is_left() -> bool:
            return not await bench.client.exists(f"{bench.keys.worker('w1')}:claim", bench.keys.parked("default"))

        await wait_until(nothing_is_left)
        await source.aclose()
    await bench.aclose()


async def test_the_worker_is_listed(place: Place, wait_until: WaitUntil) -> None:
    async with place.worker(queues=["default", "more"]) as worker:

        async def listed() -> bool:
            return [state.info.id for state in (await place.store.workers()).workers] == [worker.id]

        await wait_until(listed)
        (state,) = (await place.store.workers()).workers
        assert (state.info.queues, state.info.slots) == (("default", "more"), 2)
        assert abs(state.info.started_at_ms / 1000 - time.time()) < 30


async def test_a_scheduled_job_starts_in_time(place: Place, wait_until: WaitUntil) -> None:
    async with place.worker():
        await wait_until(place.is_parked)
        started = time.monotonic()
        (job_id,) = await submit(place.store, new_job(delay_ms=700))
        await wait_until(place.is_(job_id, Status.DONE))
        assert 0.65 < time.monotonic() - started < 2


async def test_a_worker_drained_from_afar_hears_of_it_before_its_next_heartbeat_and_leaves(
    place: Place, wait_until: WaitUntil
) -> None:
    async with place.worker(heartbeat=4.9, drain_timeout=30) as worker:
        short, _ = await submit(place.store, new_job(command="sleep 0.5"), new_job(command="sleep 60"))
        await wait_until(lambda: len(worker.held) == 2)
        assert await states(place) == [WorkerStatus.ACTIVE]
        await asyncio.sleep(0.3)  # a question for cancels has to reach the server
        await place.store.attempts.drain(worker.id, Drain(1000))
        await wait_until(lambda: worker._stopping.begun, within_s=3)
        assert await states(place) == [WorkerStatus.DRAINING]

        async def gone() -> bool:
            return await states(place) == []

        await wait_until(gone)
        assert await place.status(short) is Status.DONE


async def states(place: Place) -> list[WorkerStatus]:
    return [worker.status for worker in (await place.store.workers()).workers]


async def test_a_worker_that_works_until_its_queues_are_empty_ends_then(place: Place, wait_until: WaitUntil) -> None:
    async with place.worker(limits=Limits(until_empty=True)) as worker:
        (job_id,) = await submit(place.store, new_job(command="sleep 0.5", delay_ms=500))
        await wait_until(lambda: worker._stopping.begun)
        assert await place.status(job_id) is Status.DONE


async def test_a_worker_for_so_many_jobs_runs_so_many(place: Place, wait_until: WaitUntil) -> None:
    async with place.worker(limits=Limits(max_jobs=3)) as worker:
        ids = await submit(place.store, *(new_job() for _ in range(9)))
        await wait_until(lambda: worker._stopping.begun and not worker._busy())
        jobs = await place.store.jobs(ids)
        assert [job and job.status for job in jobs] == [Status.DONE] * 3 + [Status.PENDING] * 6
