"""Workers that die, freeze and drain: real processes, real signals."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from tests.builders import after, new_job, submit
from tests.commands import guardian_of
from tests.conftest import WaitUntil
from tests.servers import QUICK, Bench
from workron.models import Job, Reason, Status
from workron.store import Store

pytestmark = pytest.mark.chaos
LEASE_S = 1.5


def alive(pid_file: Path) -> bool:
    """Whether the process that wrote its id there still runs (a zombie does not)."""
    try:
        stat = Path(f"/proc/{pid_file.read_text().strip()}/stat").read_text()
    except (OSError, ValueError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


async def ended(store: Store, *ids: str) -> bool:
    return all(job is not None and job.status.terminal for job in await store.jobs(ids))


async def finished(store: Store, wait_until: WaitUntil, *ids: str, within_s: float = 30) -> list[Job]:
    await wait_until(lambda: ended(store, *ids), within_s=within_s)
    return [job for job in await store.jobs(ids) if job is not None]


async def test_three_workers_run_five_jobs_once_each(processes, bench: Bench, wait_until: WaitUntil) -> None:
    store = bench.store()
    for _ in range(3):
        processes.worker()
    processes.reaper()
    ids = await submit(store, *(new_job(command=f"echo {n}") for n in range(5)))
    jobs = await finished(store, wait_until, *ids)
    assert [(job.status, job.attempts) for job in jobs] == [(Status.DONE, 1)] * 5
    assert [(await store.output(job_id)).head for job_id in ids] == [f"{n}\n".encode() for n in range(5)]


async def test_thirty_slots_of_three_processes_share_twenty_jobs(
    processes, bench: Bench, wait_until: WaitUntil, tmp_path: Path
) -> None:
    store = bench.store()
    ids = await submit(store, *(new_job(command=f"echo x >> {tmp_path}/ran-{n}") for n in range(20)))
    for _ in range(3):
        processes.worker(slots=10)
    jobs = await finished(store, wait_until, *ids)
    assert {job.attempts for job in jobs} == {1}
    assert [(tmp_path / f"ran-{n}").read_text() for n in range(20)] == ["x\n"] * 20


async def test_the_job_of_a_killed_worker_runs_on_another_one_in_time(
    processes, bench: Bench, wait_until: WaitUntil, tmp_path: Path
) -> None:
    store = bench.store()
    first = processes.worker()
    processes.reaper()
    pid_file = tmp_path / "command.pid"
    (job_id,) = await submit(
        store, new_job(command=f'test "$WORKRON_ATTEMPT" = 2 || {{ echo $$ > {pid_file}; sleep 60; }}')
    )
    await wait_until(pid_file.exists)
    processes.worker()
    first.kill()
    killed_at = time.monotonic()
    await wait_until(lambda: not alive(pid_file), within_s=5)
    assert time.monotonic() - killed_at < 1.5, "its command outlived it"
    (job,) = await finished(store, wait_until, job_id)
    assert time.monotonic() - killed_at < LEASE_S + 2
    assert (job.status, job.attempts) == (Status.DONE, 2)


async def test_a_job_whose_workers_all_die_fails_as_worker_lost(
    processes, bench: Bench, wait_until: WaitUntil, tmp_path: Path
) -> None:
    store = bench.store()
    processes.reaper()
    command = f"touch {tmp_path}/ran-$WORKRON_ATTEMPT; sleep 60"
    (job_id,) = await submit(store, new_job(command=command, max_attempts=2))
    for attempt in (1, 2):
        worker = processes.worker()
        await wait_until((tmp_path / f"ran-{attempt}").exists)  # killed before, the last one does not count
        worker.kill()
    (job,) = await finished(store, wait_until, job_id)
    assert (job.status, job.reason, job.attempts) == (Status.FAILED, Reason.WORKER_LOST, 2)


async def test_a_job_that_never_got_a_heartbeat_is_taken_back(processes, bench: Bench, wait_until: WaitUntil) -> None:
    from tests.builders import claim

    store = bench.store(QUICK)
    (job_id,) = await submit(store, new_job())
    await claim(store, worker="died-at-once")
    processes.reaper()
    processes.worker()
    (job,) = await finished(store, wait_until, job_id)
    assert (job.status, job.attempts) == (Status.DONE, 2)


async def test_a_frozen_workers_command_is_dead_by_the_end_of_the_lease_and_its_result_is_refused(
    processes, bench: Bench, wait_until: WaitUntil, tmp_path: Path
) -> None:
    store = bench.store()
    frozen = processes.worker()
    processes.reaper()
    pids = [tmp_path / name for name in ("leader.pid", "child.pid")]
    script = f'test "$WORKRON_ATTEMPT" = 2 || {{ (echo $BASHPID > {pids[1]}; sleep 60) & echo $$ > {pids[0]}; wait; }}'
    (job_id,) = await submit(store, new_job(argv=("bash", "-c", script)))
    await wait_until(lambda: all(pid.exists() for pid in pids))
    os.killpg(frozen.pid, signal.SIGSTOP)
    stopped_at = time.monotonic()
    await wait_until(lambda: not any(alive(pid) for pid in pids), within_s=10)
    assert time.monotonic() - stopped_at < LEASE_S + 0.5
    await wait_until(lambda: taken_back(store, job_id))
    processes.worker()
    (job,) = await finished(store, wait_until, job_id)
    os.killpg(frozen.pid, signal.SIGCONT)
    await wait_until(lambda: "lease_lost" in processes.logs() or "lease lost" in processes.logs())
    assert ((await store.job(job_id)).status, job.status, job.attempts) == (Status.DONE, Status.DONE, 2)


async def taken_back(store: Store, job_id: str) -> bool:
    return (await store.job(job_id)).status is Status.PENDING


async def test_a_killed_guardian_is_replaced_and_still_guards(
    processes, bench: Bench, wait_until: WaitUntil, tmp_path: Path
) -> None:
    store = bench.store()
    worker = processes.worker()
    pid_file = tmp_path / "command.pid"
    (job_id,) = await submit(store, new_job(command=f"echo $$ > {pid_file}; exec sleep 60"))
    await wait_until(pid_file.exists)
    old = guardian_of(worker.pid)
    os.kill(old, signal.SIGKILL)
    await wait_until(lambda: (new := guardian_of(worker.pid)) is not None and new != old)
    (second,) = await submit(store, new_job(command="true"))
    await finished(store, wait_until, second)
    worker.kill()
    await wait_until(lambda: not alive(pid_file), within_s=5)
    assert (await store.job(job_id)).status is Status.RUNNING


async def test_a_stopping_worker_lets_commands_finish_and_gives_back_the_rest_unharmed(
    processes, bench: Bench, wait_until: WaitUntil, tmp_path: Path
) -> None:
    store = bench.store()
    worker = processes.worker(slots=2)
    (quick, slow) = await submit(
        store,
        new_job(command=f"touch {tmp_path}/quick; sleep 0.5; echo done"),
        new_job(command=f"test -e {tmp_path}/slow && exit 0; touch {tmp_path}/slow; sleep 60", max_attempts=1),
    )
    await wait_until(lambda: (tmp_path / "quick").exists() and (tmp_path / "slow").exists())
    worker.terminate()
    assert worker.wait(20) == 0
    jobs = await store.jobs([quick, slow])
    assert [(job.status, job.attempts) for job in jobs if job] == [(Status.DONE, 1), (Status.PENDING, 0)]
    processes.worker()
    (job,) = await finished(store, wait_until, slow)
    assert (job.status, job.attempts) == (Status.DONE, 1)


async def test_a_stop_takes_precedence_over_a_backlog(processes, bench: Bench, wait_until: WaitUntil) -> None:
    store = bench.store()
    await store.submit([new_job(command="sleep 0.05") for _ in range(300)])
    worker = processes.worker()
    await wait_until(lambda: count(store, Status.DONE))
    worker.terminate()
    assert worker.wait(20) == 0
    assert await count(store, Status.RUNNING) == 0
    assert await count(store, Status.PENDING) > 100


async def count(store: Store, status: Status) -> int:
    return sum([queue.counts[status] for queue in await store.queues()])


async def test_a_second_signal_ends_a_worker_now_and_loses_nothing(
    processes, bench: Bench, wait_until: WaitUntil, tmp_path: Path
) -> None:
    store = bench.store()
    processes.set(WORKRON_DRAIN_TIMEOUT="60s")
    worker = processes.worker()
    (job_id,) = await submit(store, new_job(command=f"touch {tmp_path}/started; sleep 60"))
    await wait_until((tmp_path / "started").exists)
    worker.terminate()
    await wait_until(lambda: "worker draining" in processes.logs())
    await asyncio.sleep(0.6)  # a second signal counts only half a second after the first
    worker.terminate()
    assert worker.wait(10) == 0
    job = await store.job(job_id)
    assert (job.status, job.attempts) == (Status.PENDING, 0)


async def test_a_cancel_stops_the_whole_process_group_at_once(
    processes, bench: Bench, wait_until: WaitUntil, tmp_path: Path
) -> None:
    store = bench.store()
    processes.worker()
    pid_file = tmp_path / "child.pid"
    (job_id,) = await submit(
        store, new_job(argv=("bash", "-c", f"trap '' TERM; (echo $BASHPID > {pid_file}; sleep 60) & wait; wait"))
    )
    await wait_until(pid_file.exists)
    await store.cancel(job_id)
    cancelled_at = time.monotonic()
    (job,) = await finished(store, wait_until, job_id)
    assert time.monotonic() - cancelled_at < 3
    assert job.status is Status.CANCELLED
    assert not alive(pid_file)


async def test_a_timeout_kills_what_ignores_term(processes, bench: Bench, wait_until: WaitUntil) -> None:
    store = bench.store()
    processes.worker()
    (job_id,) = await submit(
        store, new_job(argv=("bash", "-c", "trap '' TERM; sleep 60; sleep 60"), timeout_ms=300, max_attempts=1)
    )
    (job,) = await finished(store, wait_until, job_id)
    assert (job.status, job.reason) == (Status.FAILED, Reason.TIMEOUT)


async def test_an_idle_worker_is_quiet_and_wakes_within_milliseconds(
    processes, bench: Bench, wait_until: WaitUntil
) -> None:
    store = bench.store()
    processes.set(WORKRON_LEASE="30s")
    processes.worker()

    async def has_begun() -> bool:  # what it says and asks at its start comes in any order
        parked = await bench.client.zcard(bench.keys.parked("default"))
        return bool(parked and (await store.workers()).workers)

    async def commands() -> int:
        return int((await bench.client.info("stats"))["total_commands_processed"])

    async def is_quiet() -> bool:  # on a busy machine, more of its start follows
        before = await commands()
        await asyncio.sleep(0.5)
        return await commands() - before <= 1

    await wait_until(has_begun)
    await wait_until(is_quiet)
    before = await commands()
    started = time.monotonic()
    await asyncio.sleep(8)  # what is measured is that nothing happens; one heartbeat falls into it, or two
    used = await commands() - before
    assert used / (time.monotonic() - started) < 2
    delays = []
    for _ in range(10):
        (job_id,) = await submit(store, new_job(command="true"))
        await store.wait(job_id, 10)
        job = await store.job(job_id)
        assert job.started_at_ms is not None
        delays.append(job.started_at_ms - job.created_at_ms)
    assert sorted(delays)[5] <= 20, delays


async def test_a_dag_survives_the_death_of_every_worker_in_turn(processes, bench: Bench, wait_until: WaitUntil) -> None:
    store = bench.store()
    processes.reaper()
    root = new_job(command="sleep 0.2")
    middle = [new_job(command="sleep 0.2", depends_on=after(root.id), max_attempts=10) for _ in range(12)]
    last = new_job(command="echo end", depends_on=after(*(job.id for job in middle)), max_attempts=10)
    await store.submit([root, *middle, last], as_workflow=True)
    for _ in range(3):
        worker = processes.worker(slots=3)
        await wait_until(lambda: count(store, Status.RUNNING))
        await asyncio.sleep(0.3)  # let it get into the middle of things
        worker.kill()
    processes.worker(slots=4)
    jobs = await finished(store, wait_until, root.id, *(job.id for job in middle), last.id, within_s=60)
    assert {job.status for job in jobs} == {Status.DONE}
