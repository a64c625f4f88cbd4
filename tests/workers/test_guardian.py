"""The guardian: what a worker ran dies with it, and guardians are replaced."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands import alive, claim_for, guardian_of, pid_in, start
from tests.conftest import WaitUntil
from workers import guardian_link
from workers.executor import Executor
from workers.exits import Exits
from workers.guardian import boottime_s
from workers.guardian_link import GuardianLink
from workron.errors import StartupError
from workron.models import Reason

pytestmark = pytest.mark.chaos

PRETEND_WORKER = Path(__file__).parents[1] / "pretend_worker.py"


class PretendWorker:
    """A worker process in a session of its own, and the pids of what it runs."""

    def __init__(self, folder: Path, *, lease_s: float, mode: str = "silent") -> None:
        self.folder = folder
        self.started_at_s = boottime_s()
        # Three ways to escape: background children, a session of one's own, and an environment of one's own.
        ignoring = "trap '' TERM INT HUP; echo $$ > {}; while :; do sleep 0.05; done"
        plain, background, daemon, bare = (ignoring.format(folder / name) for name in self.names)
        commands = [plain, f'sh -c "{_quoted(background)}" & wait', f'setsid sh -c "{_quoted(daemon)}" & wait']
        commands.append(f'exec env -i PATH="$PATH" sh -c "{_quoted(bare)}"')
        self.process = subprocess.Popen(
            [sys.executable, PRETEND_WORKER, str(lease_s), mode, *commands],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.guardian = int(json.loads(self.process.stdout.readline())["guardian"])

    names = ("plain", "background", "daemon", "bare")

    @property
    def pids(self) -> list[int]:
        return [pid for name in self.names if (pid := pid_in(self.folder / name)) is not None]

    def all_run(self) -> bool:
        return len(self.pids) == len(self.names) and all(map(alive, self.pids))

    def some_run(self) -> list[int]:
        return [pid for pid in self.pids if alive(pid)]

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)

    def outcomes(self) -> list[dict[str, Any]]:
        """Wait for its end and return what it reported."""
        output, _ = self.process.communicate(timeout=30)
        return [json.loads(line) for line in output.splitlines()]

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        for pid in self.some_run():
            os.kill(pid, signal.SIGKILL)


def _quoted(script: str) -> str:
    return script.replace("$", "\\$")


@pytest.fixture
def workers() -> Iterator[list[PretendWorker]]:
    workers: list[PretendWorker] = []
    yield workers
    for worker in workers:
        worker.close()


# --- the worker dies or stands still ---------------------------------------------------------------------------------


async def test_commands_die_within_a_second_after_kill_9_of_the_worker(
    tmp_path: Path, workers: list[PretendWorker], wait_until: WaitUntil
) -> None:
    worker = PretendWorker(tmp_path, lease_s=600)
    workers.append(worker)
    await wait_until(worker.all_run)
    worker.process.kill()
    killed_at_s = time.monotonic()
    await wait_until(lambda: not worker.some_run())
    assert time.monotonic() - killed_at_s < 1
    await wait_until(lambda: not alive(worker.guardian))


async def test_commands_of_a_stopped_worker_die_at_the_end_of_the_lease_and_count_as_lost(
    tmp_path: Path, workers: list[PretendWorker], wait_until: WaitUntil
) -> None:
    worker = PretendWorker(tmp_path, lease_s=2)
    workers.append(worker)
    await wait_until(worker.all_run)
    worker.signal(signal.SIGSTOP)
    await wait_until(lambda: not worker.some_run())
    # It was a little after its start that the worker counted the deadline from.
    assert 2 <= boottime_s() - worker.started_at_s < 4
    worker.signal(signal.SIGCONT)
    assert [outcome["reason"] for outcome in worker.outcomes()] == ["worker_lost"] * 4


async def test_commands_live_as_long_as_the_lease_is_renewed(
    tmp_path: Path, workers: list[PretendWorker], wait_until: WaitUntil
) -> None:
    worker = PretendWorker(tmp_path, lease_s=0.8, mode="renew")
    workers.append(worker)
    await wait_until(worker.all_run)
    await asyncio.sleep(1.6)
    assert worker.all_run()
    worker.signal(signal.SIGSTOP)
    await wait_until(lambda: not worker.some_run(), within_s=5)


async def test_the_guardian_survives_what_stops_and_interrupts_the_worker(
    tmp_path: Path, workers: list[PretendWorker], wait_until: WaitUntil
) -> None:
    worker = PretendWorker(tmp_path, lease_s=600)
    workers.append(worker)
    await wait_until(worker.all_run)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(worker.guardian, number)
    assert os.getsid(worker.guardian) == worker.guardian
    worker.process.kill()
    await wait_until(lambda: not worker.some_run(), within_s=5)


async def test_commands_die_with_the_worker_although_their_guardian_was_killed_before(
    tmp_path: Path, workers: list[PretendWorker], wait_until: WaitUntil
) -> None:
    worker = PretendWorker(tmp_path, lease_s=600)
    workers.append(worker)
    await wait_until(worker.all_run)
    os.kill(worker.guardian, signal.SIGKILL)
    await wait_until(lambda: guardian_of(worker.process.pid) not in (None, worker.guardian))
    # Told of what runs once it is ready; there is no telling from outside when that is, but for its signal mask.
    await wait_until(lambda: _ignores_term(guardian_of(worker.process.pid)))
    await asyncio.sleep(0.3)
    assert worker.all_run()
    worker.process.kill()
    await wait_until(lambda: not worker.some_run(), within_s=5)


def _ignores_term(pid: int | None) -> bool:
    if pid is None:
        return False
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    ignored = next(line for line in lines if line.startswith("SigIgn:"))
    return bool(int(ignored.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


# --- the guardian dies -----------------------------------------------------------------------------------------------


async def test_a_dead_guardian_is_replaced_and_commands_go_on(executor: Executor, wait_until: WaitUntil) -> None:
    first = executor.guardian.pid
    assert first is not None
    attempt = executor.start(claim_for("sleep 0.5; exit 4"), boottime_s() + 100)
    await wait_until(lambda: executor.attempts)
    os.kill(first, signal.SIGKILL)
    await wait_until(lambda: executor.guardian.pid not in (None, first) and executor.guardian.up.is_set())
    assert (await attempt.wait()).exit_code == 4


async def test_a_new_guardian_knows_the_deadlines_of_what_runs(
    executor: Executor, tmp_path: Path, wait_until: WaitUntil
) -> None:
    attempt = executor.start(claim_for(f"touch {tmp_path}/runs; sleep 60"), boottime_s() + 0.8)
    await wait_until((tmp_path / "runs").exists)
    os.kill(executor.guardian.pid or 0, signal.SIGKILL)
    assert (await attempt.wait()).reason is Reason.WORKER_LOST


async def test_no_command_starts_while_there_is_no_guardian(
    executor: Executor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wait_until: WaitUntil
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit(3)")
    real = guardian_link._PROGRAM
    monkeypatch.setattr(guardian_link, "_PROGRAM", broken)
    os.kill(executor.guardian.pid or 0, signal.SIGKILL)
    await wait_until(lambda: not executor.guardian.up.is_set())
    started = tmp_path / "started"
    waiting = executor.start(claim_for(f"touch {started}", fence=1), boottime_s() + 100)
    cancelled = executor.start(claim_for(f"touch {started}", fence=2), boottime_s() + 100)
    expiring = executor.start(claim_for(f"touch {started}", fence=3), boottime_s() + 0.1)
    lost = executor.start(claim_for(f"touch {started}", fence=4), boottime_s() + 100)
    await asyncio.sleep(0.2)
    lost.lose()
    assert (await lost.wait()).reason is Reason.WORKER_LOST
    cancelled.cancel()
    assert (await cancelled.wait()).reason is Reason.CANCELLED
    assert not started.exists()
    monkeypatch.setattr(guardian_link, "_PROGRAM", real)
    assert (await expiring.wait()).reason is Reason.WORKER_LOST
    assert (await waiting.wait()).reason is None
    assert started.exists()


async def test_no_command_starts_before_a_slow_guardian_can_know_of_it(
    executor: Executor, tmp_path: Path, wait_until: WaitUntil
) -> None:
    pid = executor.guardian.pid
    assert pid is not None
    running = start(executor, "sleep 60", fence=1)
    await wait_until(lambda: running.started)
    os.kill(pid, signal.SIGSTOP)
    while executor.guardian.up.is_set():
        executor.renew([1], boottime_s() + 100)
    waiting = start(executor, f"touch {tmp_path}/started", fence=2)
    await asyncio.sleep(0.2)
    assert not waiting.started
    os.kill(pid, signal.SIGCONT)
    assert (await waiting.wait()).reason is None
    assert executor.guardian.pid == pid
    running.lose()


async def test_a_guardian_that_never_gets_ready_stops_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit(3)")
    monkeypatch.setattr(guardian_link, "_PROGRAM", broken)
    monkeypatch.setattr(guardian_link, "_START_S", 0.3)
    with contextlib.closing(Exits()) as exits, pytest.raises(StartupError, match="guardian"):
        await GuardianLink().start(exits)


async def test_a_guardian_that_does_not_read_is_replaced(
    executor: Executor, monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil
) -> None:
    monkeypatch.setattr(guardian_link, "_STUCK_S", 0.2)
    first = executor.guardian.pid
    assert first is not None
    attempt = executor.start(claim_for("sleep 60"), boottime_s() + 100)
    await wait_until(lambda: attempt.claim.fence in executor.guardian._held)
    os.kill(first, signal.SIGSTOP)
    for _ in range(10_000):
        executor.renew([1], boottime_s() + 100)
    await wait_until(lambda: executor.guardian.pid not in (None, first) and executor.guardian.up.is_set())
    assert not alive(first)
    assert not attempt.task.done()
