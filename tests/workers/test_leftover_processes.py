"""What commands leave behind, found by marks that last through a new session, environment or program."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import LEASE_S, alive, claim_for, pid_in, run, start
from tests.conftest import WaitUntil
from workers.executor import Executor
from workers.guardian import Marks, boottime_s, limit_of
from workron.models import Claim, Reason

pytestmark = pytest.mark.chaos

PRETEND_WORKER = Path(__file__).parents[1] / "pretend_worker.py"
WAYS = {
    "background": "sleep 60",
    "session": "setsid sleep 60",
    "environment": "env -i setsid sleep 60",
    "orphan": "sh -c 'env -i setsid sleep 60 &'",
    "program": 'env -i setsid python3 -c \'import os; os.execv("/bin/sleep", ["sleep", "60"])\'',
    "closed": "env -i setsid sleep 60 < /dev/null > /dev/null 2>&1",
}


def marked(token: str, fence: int) -> list[int]:
    """Return the processes that have the limit of an attempt, whatever their environment says."""
    line = f" {limit_of(token, fence)} "
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            limits = Path(f"/proc/{name}/limits").read_text()
        except OSError:
            continue
        if line in limits and alive(int(name)):
            found.append(int(name))
    return found


def left(way: str, then: str, folder: Path) -> str:
    """A command that starts something, waits until it is there, and goes on with something else."""
    return f"{WAYS[way]} & until [ -e {folder}/seen ]; do sleep 0.02; done; {then}"


async def started(executor: Executor, folder: Path, wait_until: WaitUntil, fence: int) -> None:
    token = executor.guardian.token
    await wait_until(lambda: any(b"sleep\x0060" in command(pid) for pid in marked(token, fence)))
    (folder / "seen").touch()


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("way", WAYS)
async def test_what_a_command_left_survived_its_normal_end(
    executor: Executor, wait_until: WaitUntil, tmp_path: Path, way: str
) -> None:
    attempt = start(executor, left(way, "exit 0", tmp_path), fence=7)
    await started(executor, tmp_path, wait_until, 7)
    assert (await attempt.wait()).exit_code == 0
    await wait_until(lambda: marked(executor.guardian.token, 7) == [])


async def test_what_a_command_left_survived_when_the_guardian_died_with_it(
    executor: Executor, wait_until: WaitUntil, tmp_path: Path
) -> None:
    """The next guardian knew what ran, and nothing of what had just ended."""
    attempt = start(executor, left("session", "exit 0", tmp_path), fence=7)
    await started(executor, tmp_path, wait_until, 7)
    os.kill(executor.guardian.pid or 0, signal.SIGSTOP)
    assert (await attempt.wait()).exit_code == 0
    os.kill(executor.guardian.pid or 0, signal.SIGKILL)
    await wait_until(lambda: marked(executor.guardian.token, 7) == [])


async def test_a_command_under_a_fence_that_had_ended_before_was_killed_by_the_next_guardian(
    executor: Executor, wait_until: WaitUntil
) -> None:
    """It was told of the earlier end behind the later beginning."""
    await run(executor, "exit 0", fence=7)
    attempt = start(executor, "sleep 4", fence=7)
    await wait_until(lambda: attempt.started)
    before = executor.guardian.pid or 0
    os.kill(before, signal.SIGKILL)
    await wait_until(lambda: executor.guardian.pid not in (before, None) and executor.guardian.up.is_set())
    assert (await attempt.wait()).exit_code == 0


@pytest.mark.parametrize("way", WAYS)
async def test_what_had_left_session_and_environment_survived_the_timeout(
    executor: Executor, wait_until: WaitUntil, tmp_path: Path, way: str
) -> None:
    attempt = start(executor, left(way, "sleep 60", tmp_path), fence=7)
    await started(executor, tmp_path, wait_until, 7)
    attempt.cancel()
    assert (await attempt.wait()).reason is Reason.CANCELLED
    await wait_until(lambda: marked(executor.guardian.token, 7) == [])


async def test_what_had_left_session_and_environment_survived_kill_9_of_the_worker(
    wait_until: WaitUntil, tmp_path: Path
) -> None:
    pids = [tmp_path / way for way in WAYS]
    commands = [f"env -i setsid sh -c 'echo $$ > {pid}; exec sleep 60' & wait" for pid in pids]
    argv = [sys.executable, str(PRETEND_WORKER), "100", "renew", *commands]
    worker = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.DEVNULL)
    try:
        await wait_until(lambda: all(map(pid_in, pids)))
    finally:
        worker.kill()
        await worker.wait()
    await wait_until(lambda: not any(alive(pid_in(pid) or 0) for pid in pids))


async def test_neither_the_worker_nor_its_guardian_nor_another_attempt_has_the_marks(
    executor: Executor, wait_until: WaitUntil
) -> None:
    before = resource.getrlimit(resource.RLIMIT_RTTIME)
    attempts = [start(executor, argv=("sleep", "60"), fence=fence) for fence in (7, 8)]
    await wait_until(lambda: all(attempt.started for attempt in attempts))
    assert resource.getrlimit(resource.RLIMIT_RTTIME) == before
    for attempt in attempts:
        assert attempt._process is not None
        assert marked(executor.guardian.token, attempt.claim.fence) == [attempt._process.pid]
    os.kill(executor.guardian.pid or 0, signal.SIGKILL)
    await wait_until(executor.guardian.up.is_set)
    marks = Marks(executor.guardian.token, (7, 8))
    assert not marks.are_on(os.getpid())
    assert not marks.are_on(executor.guardian.pid or 0)


async def test_the_guardian_of_a_worker_that_is_a_command_itself_was_killed_before_it_could_kill(
    executor: Executor, wait_until: WaitUntil
) -> None:
    """The outer worker's guardian killed it as a command's leftover, and the commands of the inner worker went on."""
    before, first = resource.getrlimit(resource.RLIMIT_RTTIME), executor.guardian.pid or 0
    try:
        resource.setrlimit(resource.RLIMIT_RTTIME, (limit_of("outer", 5), before[1]))
        os.kill(first, signal.SIGKILL)
        await wait_until(lambda: executor.guardian.pid not in (first, None) and executor.guardian.up.is_set())
        marks = Marks("outer", (5,))
        assert marks.are_on(os.getpid())
        assert not marks.are_on(executor.guardian.pid or 0)
    finally:
        resource.setrlimit(resource.RLIMIT_RTTIME, before)


async def test_where_the_system_refuses_the_limit_no_command_could_be_started(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    outcome, _ = await run(executor, "exit 3")
    assert outcome.exit_code == 3


@pytest.mark.parametrize(
    "claim", [claim_for(cwd="/", argv=("sleep", "60")), claim_for(":" + " " * 200_000 + "; sleep 60")]
)
async def test_whatever_way_a_command_is_started_it_has_the_marks(
    executor: Executor, wait_until: WaitUntil, claim: Claim
) -> None:
    executor.start(claim, boottime_s() + LEASE_S)
    await wait_until(lambda: marked(executor.guardian.token, claim.fence))


async def test_an_attempt_that_begins_again_under_its_fence_is_spared(executor: Executor) -> None:
    for _ in range(20):
        outcome, _ = await run(executor, "sleep 0.05")
        assert outcome.exit_code == 0


WORKER = """
import resource, subprocess, sys
from workers import guardian
program = [sys.executable, "-I", "-S", guardian.__file__, "t" * 32]
guard = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
guard.stdout.readline()
_, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
resource.setrlimit(resource.RLIMIT_RTTIME, (guardian.limit_of("t" * 32, 7), hard))
command = subprocess.Popen(["sleep", "60"])
guard.stdin.write(b"begin 7 0.0\\n")
guard.stdin.flush()
print(command.wait())
"""


def test_a_worker_that_stood_still_as_it_started_a_command_was_killed_by_its_guardian() -> None:
    """It bears the limit for a moment, by which the command is to be known."""
    worker = subprocess.run([sys.executable, "-c", WORKER], capture_output=True, text=True, timeout=100)
    assert (worker.returncode, worker.stdout) == (0, "-9\n")


def test_marks_of_other_workers_and_attempts_are_others() -> None:
    fences = range(1_790_000_000_000, 1_790_000_002_000)
    limits = {limit_of(token, fence) for token in ("a" * 32, "b" * 32) for fence in fences}
    assert len(limits) == 2 * len(fences)
    assert all(1 << 62 <= limit < 1 << 63 for limit in limits)
