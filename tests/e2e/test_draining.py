"""Workers that are told to stop, or stop by themselves: real processes, real signals, a real API."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.builders import after, new_job
from tests.conftest import WaitUntil
from tests.ports import free_port
from tests.servers import Bench
from workron.models import Status
from workron.models.workers import WorkerStatus
from workron.store import Store

pytestmark = pytest.mark.chaos

BACKLOG = 10_000
ROUNDS = 4


async def counts(store: Store) -> dict[Status, int]:
    queues = await store.queues()
    return {status: sum(queue.counts[status] for queue in queues) for status in Status}


async def worker_ids(store: Store) -> list[str]:
    return [worker.info.id for worker in (await store.workers()).workers]


async def test_no_job_starts_after_the_signal_however_many_wait(
    processes, bench: Bench, wait_until: WaitUntil, tmp_path: Path
) -> None:
    """The worker is stopped while the signal comes: what it finds then, answers with jobs too, comes after it."""
    store = bench.store()
    processes.set(WORKRON_LEASE="30s", WORKRON_DRAIN_TIMEOUT="20s")
    ran = tmp_path / "ran"
    ran.touch()
    await store.submit([new_job(command=f"echo $WORKRON_JOB_ID >> {ran}; sleep 0.02") for _ in range(BACKLOG)])

    def started() -> int:
        return len(ran.read_text().splitlines())

    for _ in range(ROUNDS):
        before = started()
        worker = processes.worker(slots=8)
        await wait_until(lambda before=before: started() > before + 30)
        os.kill(worker.pid, signal.SIGSTOP)
        worker.terminate()
        await settled(started)
        at_the_signal = started()
        os.kill(worker.pid, signal.SIGCONT)
        assert worker.wait(20) == 0
        # It may have stood still between its last look at the signal and the system call that starts a command.
        assert started() <= at_the_signal + 1
    found = await counts(store)
    assert (found[Status.RUNNING], found[Status.DONE]) == (0, started())
    assert found[Status.PENDING] == BACKLOG - started()
    assert await worker_ids(store) == []


async def settled(count) -> None:
    """Wait until what was started before is seen: the commands go on while their worker stands still."""
    last, since = count(), time.monotonic()
    while time.monotonic() - since < 0.5:
        await asyncio.sleep(0.05)
        if (now := count()) != last:
            last, since = now, time.monotonic()


@pytest.mark.parametrize("source", ["--redis=redis://{}", "--api=http://{}"])
async def test_a_worker_that_waits_for_its_first_answer_ends_with_the_signal(processes, source: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute.settimeout(20)
        worker = processes.start("worker", source.format(f"127.0.0.1:{mute.getsockname()[1]}"))
        asked, _ = await asyncio.to_thread(mute.accept)
        with asked:
            worker.terminate()
            began = time.monotonic()
            assert worker.wait(20) == 0
            assert time.monotonic() - began < 1.5


async def test_a_worker_ends_within_its_times_and_gives_back_what_ignores_its_end(
    processes, bench: Bench, wait_until: WaitUntil, tmp_path: Path
) -> None:
    store = bench.store()
    command = f"trap '' TERM; touch {tmp_path}/$WORKRON_JOB_ID; sleep 60; sleep 60"
    jobs = [new_job(argv=("bash", "-c", command)) for _ in range(2)]
    await store.submit(jobs)
    worker = processes.worker(slots=2)
    await wait_until(lambda: all((tmp_path / job.id).exists() for job in jobs))
    worker.terminate()
    began = time.monotonic()
    assert worker.wait(20) == 0
    assert 1.4 < time.monotonic() - began < 4, "drain_timeout 1 s, kill_grace 0.5 s"
    assert [(job.status, job.attempts) for job in await store.jobs([job.id for job in jobs]) if job] == [
        (Status.PENDING, 0)
    ] * 2


@pytest.fixture
async def cli(processes, tmp_path: Path, wait_until: WaitUntil):
    """Runs `workron` on an API of its own."""
    port = free_port()
    processes.start("api", "--port", str(port), "--no-auth", "--data-dir", str(tmp_path / "data"))
    await wait_until(lambda: "api ready" in processes.logs())

    async def run(*args: str) -> subprocess.CompletedProcess[str]:
        env = os.environ | {"WORKRON_URL": f"http://127.0.0.1:{port}", "WORKRON_API_KEY": ""}
        command = [sys.executable, "-m", "workron", *args]
        return await asyncio.to_thread(
            subprocess.run, command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )

    return run


async def test_a_drained_worker_finishes_its_job_claims_no_more_and_ends(
    processes, cli, bench: Bench, wait_until: WaitUntil, tmp_path: Path
) -> None:
    store = bench.store()
    processes.set(WORKRON_LEASE="900s", WORKRON_HEARTBEAT="300s", WORKRON_DRAIN_TIMEOUT="20s")
    first, *others = jobs = [
        new_job(command=f"touch {tmp_path}/{n}; while test -e {tmp_path}/hold; do sleep 0.05; done") for n in range(50)
    ]
    (tmp_path / "hold").touch()
    await store.submit(jobs)
    worker = processes.worker(slots=1)
    await wait_until((tmp_path / "0").exists)
    (name,) = await worker_ids(store)

    asking = asyncio.create_task(cli("drain", name, "--wait", "-o", "json"))
    await wait_until(lambda: "worker draining" in processes.logs())
    shown = await cli("workers", name)
    assert "draining" in shown.stdout.splitlines()[0]
    assert first.id in shown.stdout
    assert (worker.poll(), asking.done()) == (None, False)
    (tmp_path / "hold").unlink()
    assert worker.wait(20) == 0
    asked = await asking
    assert (asked.returncode, asked.stderr) == (0, "")
    assert '"state": "draining"' in asked.stdout
    assert (await store.job(first.id)).status is Status.DONE
    assert (await counts(store))[Status.PENDING] == len(others)
    assert await worker_ids(store) == []
    gone = await cli("drain", name)
    assert (gone.returncode, gone.stderr) == (3, f"workron: no such worker: {name}\n")


async def test_a_drain_with_a_time_gives_back_what_still_runs_then(
    processes, cli, bench: Bench, wait_until: WaitUntil, tmp_path: Path
) -> None:
    store = bench.store()
    processes.set(WORKRON_DRAIN_TIMEOUT="60s")
    job = new_job(command=f"touch {tmp_path}/started; sleep 60")
    await store.submit([job])
    worker = processes.worker(slots=1)
    await wait_until((tmp_path / "started").exists)
    (name,) = await worker_ids(store)
    assert (await cli("drain", "--timeout", "200ms", "--wait", name)).returncode == 0
    assert worker.wait(5) == 0
    found = await store.job(job.id)
    assert (found.status, found.attempts) == (Status.PENDING, 0)


async def test_waiting_for_a_drained_worker_that_dies_ends_with_1(
    processes, cli, bench: Bench, wait_until: WaitUntil, tmp_path: Path
) -> None:
    store = bench.store()
    processes.set(WORKRON_DRAIN_TIMEOUT="60s")
    await store.submit([new_job(command=f"touch {tmp_path}/started; sleep 60")])
    worker = processes.worker(slots=1)
    await wait_until((tmp_path / "started").exists)
    (name,) = await worker_ids(store)
    waiting = asyncio.create_task(cli("drain", "--wait", name))
    await wait_until(lambda: "worker draining" in processes.logs())
    worker.kill()
    ended = await waiting
    assert (ended.returncode, "was lost" in ended.stderr) == (1, True)
    assert (await store.worker(name)).status is WorkerStatus.LOST
    listed = await cli("workers")
    assert (name in listed.stdout, "lost" in listed.stdout) == (True, True)


async def test_workers_with_max_jobs_run_so_many_and_leave_the_others_alone(processes, bench: Bench) -> None:
    store = bench.store()
    jobs = [new_job(command="true" if n % 3 else "exit 1", max_attempts=1) for n in range(60)]
    await store.submit(jobs)
    workers = [processes.start("worker", "--slots", "4", "--max-jobs", "7") for _ in range(3)]
    assert [worker.wait(30) for worker in workers] == [0, 0, 0]
    found = await counts(store)
    assert found[Status.DONE] + found[Status.FAILED] == 21
    assert found[Status.PENDING] == 39
    assert {job.attempts for job in await store.jobs([job.id for job in jobs]) if job} == {0, 1}


async def test_workers_with_until_empty_end_when_all_jobs_of_their_queues_have_ended(
    processes, bench: Bench, tmp_path: Path
) -> None:
    """Also those that are tried again, wait for their time, or for a job that another worker runs."""
    store = bench.store()
    processes.reaper()
    slow = new_job(command="sleep 1", queue="batch")
    flaky = new_job(command=f"test -e {tmp_path}/x && exit 0; touch {tmp_path}/x; exit 1", queue="batch")
    later = new_job(command="true", queue="batch", delay_ms=1500)
    last = new_job(command="true", queue="batch", depends_on=after(slow.id, flaky.id, later.id))
    other = new_job(command="true", queue="other")
    await store.submit([slow, flaky, later, last, other])
    workers = [processes.start("worker", "--slots", "1", "--queues", "batch", "--until-empty") for _ in range(2)]
    assert [worker.wait(30) for worker in workers] == [0, 0]
    found = [job.status for job in await store.jobs([slow.id, flaky.id, later.id, last.id, other.id]) if job]
    assert found == [Status.DONE] * 4 + [Status.PENDING]


async def test_a_worker_with_until_empty_ends_at_once_where_nothing_is(processes) -> None:
    worker = processes.start("worker", "--until-empty")
    assert worker.wait(20) == 0
