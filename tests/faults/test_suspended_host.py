"""A worker's host is suspended for longer than its leases: afterwards it knows that they are lost, kills what it runs,
and nothing that it reports is accepted beside what others did meanwhile.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.builders import new_job, submit
from tests.commands import alive, pid_in
from tests.conftest import WaitUntil
from tests.e2e.up import descendants
from tests.servers import Bench
from workron.models import Reason, Status
from workron.store import Store

pytestmark = [pytest.mark.chaos]

WRAPPER = Path(__file__).with_name("leaping_clock.py")
HOUR_S = 3600


class Host:
    """All processes of a worker: itself, its guardian, the commands and what these have started."""

    def __init__(self, worker: "subprocess.Popen[bytes]") -> None:
        self.pids = [worker.pid, *descendants(worker.pid)]

    def suspend(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def job_of_two_lives(folder: Path, at: int) -> Any:
    """A job whose first attempt runs for ever and whose second one ends; both say that they have begun."""
    first = f"echo $$ > {folder}/first-{at}; sleep 600 & wait"
    return new_job(command=f'echo $WORKRON_ATTEMPT >> {folder}/ran; test "$WORKRON_ATTEMPT" = 2 || {{ {first}; }}')


def pids_of_first(folder: Path, number: int) -> list[int]:
    return [pid for at in range(number) if (pid := pid_in(folder / f"first-{at}")) is not None]


async def statuses(store: Store, job_ids: list[str]) -> set[Status]:
    return {job.status for job in await store.jobs(job_ids) if job}


async def times_ended(bench: Bench, job_ids: list[str]) -> dict[str, int]:
    """Return how often each job has ended, by the events, which tell every transition."""
    entries: Any = await bench.client.xrange(bench.keys.events)
    ends = [ids.decode().split() for _, entry in entries for status, ids in entry.items() if status == b"done"]
    return {job_id: sum(job_id in ids for ids in ends) for job_id in job_ids}


async def test_what_was_suspended_with_its_host_for_longer_than_its_lease_is_killed_and_counts_no_more(
    processes: Any, bench: Bench, wait_until: WaitUntil, tmp_path: Path
) -> None:
    store = bench.store()
    processes.reaper()
    worker = processes.worker(4)
    job_ids = await submit(store, *(job_of_two_lives(tmp_path, at) for at in range(4)))
    await wait_until(lambda: len(pids_of_first(tmp_path, 4)) == 4)
    commands = pids_of_first(tmp_path, 4)
    host = Host(worker)
    assert len(host.pids) >= 2 + 4
    host.suspend()
    processes.worker(4)

    async def all_done() -> bool:
        return await statuses(store, job_ids) == {Status.DONE}

    await wait_until(all_done, within_s=30)
    assert all(map(alive, commands)), "nobody can kill them meanwhile"
    host.resume()
    await wait_until(lambda: not any(map(alive, commands)), within_s=10)
    await wait_until(lambda: processes.logs().count("result refused") + processes.logs().count('"lease lost"') >= 4)
    jobs = [await store.job(job_id) for job_id in job_ids]
    assert {(job.status, job.attempts) for job in jobs} == {(Status.DONE, 2)}
    assert await times_ended(bench, job_ids) == dict.fromkeys(job_ids, 1)
    (again,) = await submit(store, new_job(command="true"))
    await wait_until(lambda: done(store, again))
    assert worker.poll() is None


async def done(store: Store, job_id: str) -> bool:
    return (await store.job(job_id)).status is Status.DONE


async def test_after_an_hour_of_suspend_a_worker_kills_what_it_ran_and_does_not_report_it_as_a_failure(
    processes: Any, bench: Bench, wait_until: WaitUntil, tmp_path: Path
) -> None:
    """Timers have stood still, so that no heartbeat is late for the worker; only CLOCK_BOOTTIME tells."""
    store = bench.store()
    clock = tmp_path / "suspended-for"
    clock.write_text("0")
    processes.reaper()
    processes.set(WORKRON_LEASE="20s")  # so that it is not the next heartbeat that tells
    processes.launcher = [sys.executable, str(WRAPPER), str(clock)]
    worker = processes.worker(2)
    job_ids = await submit(store, *(job_of_two_lives(tmp_path, at) for at in range(2)))
    await wait_until(lambda: len(pids_of_first(tmp_path, 2)) == 2)
    commands = pids_of_first(tmp_path, 2)
    host = Host(worker)
    host.suspend()
    new = tmp_path / "new"
    new.write_text(str(HOUR_S))
    new.rename(clock)
    host.resume()
    await wait_until(lambda: not any(map(alive, commands)), within_s=5)

    async def all_done() -> bool:
        return await statuses(store, job_ids) == {Status.DONE}

    await wait_until(all_done, within_s=30)
    jobs = [await store.job(job_id) for job_id in job_ids]
    assert {(job.status, job.attempts) for job in jobs} == {(Status.DONE, 2)}
    assert processes.logs().count(f'"reason": "{Reason.WORKER_LOST}"') == 2
    assert (tmp_path / "ran").read_text().split().count("2") == 2
    assert worker.poll() is None
