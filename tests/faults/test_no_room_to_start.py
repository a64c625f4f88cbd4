"""Files or processes are used up: no job is blamed, what runs goes on, and all recovers by itself."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.builders import after, new_job, submit
from tests.conftest import WaitUntil
from tests.servers import Bench
from workron.models import Job, Status
from workron.store import Store

pytestmark = pytest.mark.chaos

UNUSED_UID = 54_321
"""Root is never short of processes. Its worker runs under this number, and may read all files nevertheless."""
AS_SOMEBODY = [
    "setpriv",
    f"--reuid={UNUSED_UID}",
    f"--regid={UNUSED_UID}",
    "--clear-groups",
    "--inh-caps=+dac_override",
    "--ambient-caps=+dac_override",
]


@contextmanager
def no_files(worker: "subprocess.Popen[bytes]") -> Iterator[None]:
    """The worker can open no further file."""
    with limited(worker, "nofile", 3):  # those that it has stay open
        yield


@contextmanager
def no_processes(worker: "subprocess.Popen[bytes]") -> Iterator[None]:
    """The worker can start no further process."""
    with limited(worker, "nproc", 1):
        yield


@contextmanager
def limited(worker: "subprocess.Popen[bytes]", kind: str, most: int) -> Iterator[None]:
    before = limit(worker, kind, str(most))
    yield
    limit(worker, kind, before)


def limit(worker: "subprocess.Popen[bytes]", kind: str, most: str) -> str:
    """Set a limit of the worker, as its own user may; returns the one before."""
    as_it = AS_SOMEBODY if os.getuid() == 0 else []
    prlimit = [*as_it, "prlimit", f"--pid={worker.pid}"]
    before = subprocess.check_output([*prlimit, f"--{kind}", "--output=SOFT", "--noheadings"], text=True)
    subprocess.run([*prlimit, f"--{kind}={most}:"], check=True)
    return before.strip()


SHORTAGES = [pytest.param(no_files, id="files"), pytest.param(no_processes, id="processes")]
Shortage = Callable[["subprocess.Popen[bytes]"], Any]


@pytest.fixture
def start_worker(processes: Any, tmp_path: Path) -> Callable[..., "subprocess.Popen[bytes]"]:
    """Start a worker that is not root, so that it can be short of processes."""
    if os.getuid() == 0:
        folder = tmp_path / "of-the-worker"
        folder.mkdir()
        folder.chmod(0o777)
        processes.set(TMPDIR=str(folder))
        processes.launcher = AS_SOMEBODY
    return lambda slots=2: processes.worker(slots)


async def statuses(store: Store, *job_ids: str) -> set[Status]:
    return {job.status for job in await store.jobs(job_ids) if job}


async def ended(store: Store, wait_until: WaitUntil, *job_ids: str) -> list[Job]:
    async def have_ended() -> bool:
        return all(status.terminal for status in await statuses(store, *job_ids))

    await wait_until(have_ended, within_s=30)
    return [job for job in await store.jobs(job_ids) if job]


@pytest.mark.parametrize("shortage", SHORTAGES)
async def test_jobs_that_a_worker_has_no_room_for_wait_and_are_not_blamed(
    shortage: Shortage,
    start_worker: Callable[..., "subprocess.Popen[bytes]"],
    processes: Any,
    bench: Bench,
    wait_until: WaitUntil,
    tmp_path: Path,
) -> None:
    store = bench.store()
    processes.reaper()
    worker = start_worker(slots=3)
    go = tmp_path / "go"
    os.mkfifo(go)
    (running,) = await submit(store, new_job(argv=("bash", "-c", f"read < {go}")))  # starts nothing itself
    await wait_until(lambda: runs(store, running))
    with shortage(worker):
        plain, elsewhere, root = (
            new_job(command="echo plain", max_attempts=1),
            new_job(command="pwd", cwd="/", max_attempts=1),
            new_job(command="true", max_attempts=1),
        )
        child = new_job(command="cat $WORKRON_PARENTS", depends_on=after(root.id), max_attempts=1)
        job_ids = await submit(store, plain, elsewhere, root, child)
        await wait_until(lambda: "resources exhausted" in processes.logs())
        await wait_until(lambda: given_back(processes) >= 3)
        assert await statuses(store, *job_ids) <= {Status.PENDING, Status.RUNNING, Status.BLOCKED}
    jobs = await ended(store, wait_until, *job_ids)
    assert [(job.status, job.attempts) for job in jobs] == [(Status.DONE, 1)] * 4
    go.write_text("go\n")
    (job,) = await ended(store, wait_until, running)
    assert (job.status, job.attempts) == (Status.DONE, 1)
    assert worker.poll() is None
    assert processes.logs().count("resources exhausted") == 1
    assert "resources available, commands start again" in processes.logs()
    assert "Traceback" not in processes.logs()


async def runs(store: Store, job_id: str) -> bool:
    return (await store.job(job_id)).status is Status.RUNNING


def given_back(processes: Any) -> int:
    return int(processes.logs().count('"job released"'))


@pytest.mark.parametrize("shortage", SHORTAGES)
async def test_a_worker_without_room_leaves_the_work_to_others(
    shortage: Shortage,
    start_worker: Callable[..., "subprocess.Popen[bytes]"],
    processes: Any,
    bench: Bench,
    wait_until: WaitUntil,
) -> None:
    store = bench.store()
    short = start_worker(slots=4)
    (first,) = await submit(store, new_job())
    await ended(store, wait_until, first)
    with shortage(short):
        processes.worker(4)
        job_ids = await submit(store, *(new_job(command="sleep 0.02", max_attempts=1) for _ in range(60)))
        jobs = await ended(store, wait_until, *job_ids)
    assert {(job.status, job.attempts) for job in jobs} == {(Status.DONE, 1)}


async def test_a_guardian_that_dies_while_nothing_can_be_started_is_replaced_later(
    start_worker: Callable[..., "subprocess.Popen[bytes]"], processes: Any, bench: Bench, wait_until: WaitUntil
) -> None:
    from tests.commands import guardian_of

    store = bench.store()
    worker = start_worker(slots=2)
    (first,) = await submit(store, new_job())
    await ended(store, wait_until, first)
    with no_processes(worker):
        guardian = guardian_of(worker.pid)
        assert guardian is not None
        os.kill(guardian, signal.SIGKILL)
        await wait_until(lambda: "guardian start failed" in processes.logs())
        (second,) = await submit(store, new_job(max_attempts=1))
    (job,) = await ended(store, wait_until, second)
    assert (job.status, job.attempts) == (Status.DONE, 1)
