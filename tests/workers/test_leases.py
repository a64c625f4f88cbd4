"""Nothing outlives its lease, and nothing else is killed."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.commands import alive, claim_for
from tests.conftest import WaitUntil
from workers.executor import Executor
from workers.exits import Exits
from workers.guardian import boottime_s
from workers.guardian_link import GuardianLink
from workron.models import Outcome, Reason

pytestmark = pytest.mark.chaos


Sleeper = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    """Starts processes in groups of their own, with the marks of an attempt or without."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(token: str = "", fence: int = 0) -> subprocess.Popen[bytes]:
        environment = {"WORKRON_GUARD": token, "WORKRON_FENCE": str(fence)} if token else {}
        process = subprocess.Popen(["/bin/sleep", "60"], env=environment, start_new_session=True)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture
async def guardian() -> AsyncIterator[GuardianLink]:
    exits, guardian = Exits(), GuardianLink()
    await guardian.start(exits)
    yield guardian
    await guardian.close()
    exits.close()


# --- the end of a lease ----------------------------------------------------------------------------------------------


async def test_a_command_is_killed_at_its_deadline_and_reported_as_lost(executor: Executor) -> None:
    deadline = boottime_s() + 0.5
    outcome = await executor.run(claim_for("trap '' TERM; while :; do sleep 0.01; done"), deadline=deadline)
    assert deadline <= boottime_s() < deadline + 2
    assert outcome == Outcome(
        Reason.WORKER_LOST, signal=signal.SIGKILL, error="killed because its worker could not keep the lease"
    )


async def test_an_attempt_whose_lease_has_ended_is_not_started(executor: Executor, tmp_path: Path) -> None:
    outcome = await executor.run(claim_for(f"touch {tmp_path / 'started'}"), deadline=boottime_s())
    assert (outcome.reason, outcome.signal) == (Reason.WORKER_LOST, None)
    assert not (tmp_path / "started").exists()


async def test_a_renewal_that_comes_too_late_loses_the_attempt(executor: Executor, wait_until: WaitUntil) -> None:
    attempt = executor.start(claim_for("sleep 60"), boottime_s() + 0.3)
    await wait_until(lambda: executor.attempts)
    time.sleep(0.4)  # noqa: ASYNC251 - the loop stands still, as in a stopped worker
    executor.renew([1], boottime_s() + 100)
    assert (await attempt.wait()).reason is Reason.WORKER_LOST


async def test_a_success_noticed_after_the_lease_is_still_a_success(executor: Executor, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    attempt = executor.start(claim_for(f"echo $$ > {pid}"), boottime_s() + 0.5)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    time.sleep(0.8)  # noqa: ASYNC251 - as above
    assert not attempt.task.done()
    assert (await attempt.wait()).reason is None
    assert attempt.deadline < boottime_s()


async def test_a_failure_noticed_after_the_lease_is_not_the_commands_own(executor: Executor) -> None:
    attempt = executor.start(claim_for("exit 1"), boottime_s() + 0.5)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    time.sleep(0.8)  # noqa: ASYNC251 - as above
    assert (await attempt.wait()).reason is Reason.WORKER_LOST


async def test_a_command_started_after_its_deadline_by_a_worker_that_was_stopped_is_killed(
    guardian: GuardianLink, sleeper: Sleeper, wait_until: WaitUntil
) -> None:
    bystander = sleeper()
    guardian.begin(1, boottime_s() + 0.1)
    guardian.begin(2, boottime_s() + 0.1)
    await asyncio.sleep(0.3)  # the guardian finds nothing to kill
    not_yet_named, unmarked = sleeper(guardian.token, 1), sleeper()
    guardian.group(2, unmarked.pid)
    await wait_until(lambda: not_yet_named.poll() is not None, within_s=5)
    await wait_until(lambda: unmarked.poll() is not None, within_s=5)
    assert bystander.poll() is None


# --- nothing else is killed ------------------------------------------------------------------------------------------


async def test_only_processes_with_token_and_fence_of_an_attempt_are_killed(
    guardian: GuardianLink, sleeper: Sleeper
) -> None:
    ours, ended = sleeper(guardian.token, 12), sleeper(guardian.token, 13)
    others = [sleeper(guardian.token, 1), sleeper(guardian.token, 123), sleeper("another token", 12), sleeper()]
    guardian.begin(12, boottime_s() + 100)
    guardian.begin(13, boottime_s() + 100)
    guardian.group(13, ended.pid)
    guardian.end(13)
    await guardian.close()  # with an attempt not ended, as if the worker had died
    assert [process.wait(5) for process in (ours, ended)] == [-signal.SIGKILL] * 2
    assert [process.poll() for process in others] == [None] * 4


async def test_the_guardian_holds_nothing_of_the_worker_and_commands_nothing_of_the_guardian(
    executor: Executor, wait_until: WaitUntil
) -> None:
    guardian = executor.guardian.pid

    def open_files() -> list[str]:
        return [os.readlink(f"/proc/{guardian}/fd/{fd}") for fd in os.listdir(f"/proc/{guardian}/fd")]

    await wait_until(lambda: len(open_files()) == 2)  # the other pipe, by which it said that it is ready, is closed
    pipe, null = sorted(open_files(), key=lambda name: name == "/dev/null")
    assert (pipe.startswith("pipe:"), null) == (True, "/dev/null")
    assert b"WORKRON" not in Path(f"/proc/{guardian}/environ").read_bytes()
    attempt = executor.start(claim_for("ls -l /proc/$$/fd"), boottime_s() + 100)
    await attempt.wait()
    patch = attempt.output.take()
    assert patch is not None
    assert b"pipe:" in patch.data
    assert pipe.encode() not in patch.data


async def test_the_guardian_leaves_with_the_executor() -> None:
    async with Executor(kill_grace_s=1) as executor:
        guardian = executor.guardian.pid
        await executor.run(claim_for("true"), deadline=boottime_s() + 100)
        assert guardian is not None
        assert alive(guardian)
    assert not alive(guardian)


async def test_thousands_of_attempts_can_be_renewed_at_once(
    guardian: GuardianLink, sleeper: Sleeper, wait_until: WaitUntil
) -> None:
    victim, pid = sleeper(), guardian.pid
    fences = range(1_700_000_000_000, 1_700_000_020_000)
    for fence in fences:
        guardian.begin(fence, boottime_s() + 100)
    guardian.begin(1, boottime_s() + 100)
    guardian.group(1, victim.pid)
    guardian.renew([*fences, 1], boottime_s() + 0.5)
    guardian.renew(fences, boottime_s() + 100)
    await wait_until(lambda: victim.poll() is not None, within_s=10)
    for fence in [*fences, 1]:
        guardian.end(fence)
    await wait_until(lambda: not guardian._unwritten)
    assert guardian.pid == pid
