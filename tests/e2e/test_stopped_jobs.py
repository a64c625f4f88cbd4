"""Cancels and deadlines with real processes: what stops, and what the job says then, also when its worker dies."""

import time
from pathlib import Path

import pytest

from tests.builders import new_job, submit
from tests.commands import alive, pid_in
from tests.conftest import WaitUntil
from tests.servers import Bench
from workron.models import Job, Moment, Reason, Status
from workron.store import Store

pytestmark = pytest.mark.chaos
STUBBORN = "trap '' TERM; echo $$ > {file}; while :; do sleep 0.05; done"


async def job_after(store: Store, job_id: str, wait_until: WaitUntil) -> Job:
    async def ended() -> bool:
        return (await store.job(job_id)).status.terminal

    await wait_until(ended, within_s=30)
    return await store.job(job_id)


async def begun(store: Store, wait_until: WaitUntil, file: Path, how: str) -> tuple[str, int]:
    """Submit the job and return its id and pid; its deadline is longer if a slow machine began it too late."""
    for deadline_ms in (2_500, 10_000, 40_000):
        deadline = Moment(after_ms=deadline_ms) if how == "deadline" else None
        new = new_job(command=STUBBORN.format(file=file), deadline=deadline, max_attempts=9)
        (job_id,) = await submit(store, new)

        async def begun_or_ended(job_id: str = job_id) -> bool:
            return pid_in(file) is not None or (await store.job(job_id)).status.terminal

        await wait_until(begun_or_ended, within_s=60)
        if (pid := pid_in(file)) is not None:
            return job_id, pid
    raise AssertionError("no worker began the job within its deadline")


@pytest.mark.parametrize("how", ["cancel", "deadline"])
async def test_a_job_that_is_being_stopped_ends_as_promised_when_its_worker_is_killed(
    processes, bench: Bench, wait_until: WaitUntil, tmp_path: Path, how: str
) -> None:
    """In the grace time, with attempts left, and another worker ready to run it."""
    store, file = bench.store(), tmp_path / "pid"
    processes.set(WORKRON_KILL_GRACE="20s")
    first = processes.worker()
    processes.reaper()
    job_id, pid = await begun(store, wait_until, file, how)
    if how == "cancel":
        await store.cancel(job_id, run=1)
    else:
        await wait_until(lambda: bench.client.hexists(bench.keys.job(job_id), "expired_at"), within_s=60)
    processes.worker()
    first.kill()
    job = await job_after(store, job_id, wait_until)
    expected = (Status.CANCELLED, Reason.CANCELLED) if how == "cancel" else (Status.FAILED, Reason.EXPIRED)
    assert (job.status, job.reason, job.attempts) == (*expected, 1)
    await wait_until(lambda: not alive(pid), within_s=5)


async def test_a_command_that_ignores_term_is_killed_after_the_grace_time(
    processes, bench: Bench, wait_until: WaitUntil, tmp_path: Path
) -> None:
    store, file = bench.store(), tmp_path / "pid"
    processes.worker()
    (job_id,) = await submit(store, new_job(command=STUBBORN.format(file=file)))
    await wait_until(lambda: pid_in(file))
    started = time.monotonic()
    await store.cancel(job_id)
    job = await job_after(store, job_id, wait_until)
    assert (job.status, job.signal) == (Status.CANCELLED, 9)
    assert 0.5 <= time.monotonic() - started < 10  # WORKRON_KILL_GRACE is 0.5 s
