"""Ending a command before its time: timeout, cancel, stop and a lost lease."""

import asyncio
import signal
import time
from pathlib import Path

import pytest

from tests.commands import alive, let_end_unnoticed, pid_in, run, start
from tests.conftest import WaitUntil
from workers.executor import Executor
from workron.models import Outcome, Reason


async def test_a_timeout_terminates_and_keeps_the_exit_code(executor: Executor) -> None:
    outcome, output = await run(executor, "trap 'echo bye; exit 5' TERM; sleep 60 & wait", timeout_ms=200)
    assert outcome == Outcome(Reason.TIMEOUT, exit_code=5, error="timed out after 0.2 s\nbye\n")
    assert output == b"bye\n"


async def test_a_command_that_ignores_term_is_killed_after_the_grace_time(executor: Executor) -> None:
    started = time.monotonic()
    outcome, _ = await run(executor, "trap '' TERM; while :; do sleep 0.01; done", timeout_ms=200)
    assert outcome == Outcome(Reason.TIMEOUT, signal=signal.SIGKILL, error="timed out after 0.2 s")
    assert 0.5 <= time.monotonic() - started < 10


async def test_children_that_ignore_term_are_killed_although_the_leader_obeys(
    executor: Executor, tmp_path: Path, wait_until: WaitUntil
) -> None:
    child = tmp_path / "child"
    attempt = start(executor, f"sh -c 'trap \"\" TERM; echo $$ > {child}; while :; do sleep 0.01; done' & wait")
    await wait_until(lambda: pid_in(child))
    pid = pid_in(child)
    assert pid is not None
    attempt.cancel()
    outcome = await attempt.wait()
    assert (outcome.reason, outcome.signal, outcome.error) == (Reason.CANCELLED, signal.SIGTERM, "cancelled")
    await wait_until(lambda: not alive(pid), within_s=5)


async def test_a_cancelled_command_takes_its_daemons_with_it(
    executor: Executor, tmp_path: Path, doomed: list[int], wait_until: WaitUntil
) -> None:
    file = tmp_path / "daemon"
    attempt = start(executor, f"setsid sh -c 'echo $$ > {file}; exec sleep 60' & wait")
    await wait_until(lambda: pid_in(file))
    pid = pid_in(file)
    assert pid is not None
    doomed.append(pid)
    attempt.cancel()
    await attempt.wait()
    await wait_until(lambda: not alive(pid), within_s=5)


async def test_a_command_that_stopped_itself_notices_term(tmp_path: Path, wait_until: WaitUntil) -> None:
    async with Executor(kill_grace_s=60) as executor:
        file = tmp_path / "pid"
        attempt = start(executor, f"echo $$ > {file}; kill -STOP $$; sleep 60")
        await wait_until(lambda: pid_in(file))
        attempt.cancel()
        assert (await attempt.wait()).signal == signal.SIGTERM


async def test_a_cancelled_command_that_ends_well_is_cancelled_with_exit_code_0(
    tmp_path: Path, wait_until: WaitUntil
) -> None:
    ready = tmp_path / "ready"
    async with Executor(kill_grace_s=60) as executor:
        attempt = start(executor, f"trap 'exit 0' TERM; touch {ready}; sleep 60 & wait")
        await wait_until(ready.exists)
        attempt.cancel()
        outcome = await attempt.wait()
    assert (outcome.reason, outcome.exit_code) == (Reason.CANCELLED, 0)


async def test_an_attempt_cancelled_before_its_start_never_starts(executor: Executor, tmp_path: Path) -> None:
    attempt = start(executor, f"touch {tmp_path / 'started'}")
    attempt.cancel()
    assert await attempt.wait() == Outcome(Reason.CANCELLED, error="cancelled")
    assert not (tmp_path / "started").exists()


async def test_a_stopped_attempt_is_marked_for_release(executor: Executor) -> None:
    attempt = start(executor, "sleep 60")
    attempt.stop()
    await attempt.wait()
    assert attempt.given_back


async def test_what_is_cancelled_while_its_worker_stops_is_reported_with_its_exit_code(
    executor: Executor, tmp_path: Path, wait_until: WaitUntil
) -> None:
    ready = tmp_path / "ready"
    attempt = start(executor, f"trap 'sleep 0.1; exit 5' TERM; touch {ready}; sleep 60 & wait")
    await wait_until(ready.exists)
    attempt.stop()
    attempt.cancel()
    outcome = await attempt.wait()
    assert (outcome.reason, outcome.exit_code, attempt.given_back) == (Reason.CANCELLED, 5, False)


async def test_a_second_stop_does_not_wait_for_the_grace_time(tmp_path: Path, wait_until: WaitUntil) -> None:
    async with Executor(kill_grace_s=60) as executor:
        ready = tmp_path / "ready"
        attempt = start(executor, f"trap '' TERM; touch {ready}; while :; do sleep 0.01; done")
        await wait_until(ready.exists)
        attempt.stop()
        attempt.stop(now=True)
        await attempt.wait()
        assert attempt.given_back


async def test_what_ended_by_itself_is_not_taken_for_stopped_or_cancelled(executor: Executor) -> None:
    attempt = start(executor, "exit 3")
    await let_end_unnoticed(attempt)
    attempt.stop()
    attempt.cancel()
    outcome = await attempt.wait()
    assert (outcome.reason, attempt.given_back) == (Reason.EXIT_CODE, False)


async def test_a_lost_attempt_is_killed_at_once(tmp_path: Path, wait_until: WaitUntil) -> None:
    async with Executor(kill_grace_s=60) as executor:
        ready = tmp_path / "ready"
        attempt = start(executor, f"trap '' TERM; touch {ready}; while :; do sleep 0.01; done")
        await wait_until(ready.exists)
        attempt.lose()
        outcome = await attempt.wait()
    assert (outcome.reason, outcome.signal) == (Reason.WORKER_LOST, signal.SIGKILL)


async def test_leaving_the_executor_kills_what_runs(tmp_path: Path, wait_until: WaitUntil) -> None:
    file = tmp_path / "pid"
    async with Executor(kill_grace_s=60) as executor:
        attempt = start(executor, f"trap '' TERM; echo $$ > {file}; while :; do sleep 0.01; done")
        await wait_until(lambda: pid_in(file))
    pid = pid_in(file)
    assert pid is not None
    assert not alive(pid)
    assert (await attempt.wait()).reason is Reason.WORKER_LOST


async def test_a_waiter_that_gives_up_does_not_touch_the_command(executor: Executor) -> None:
    attempt = start(executor, "sleep 0.2; exit 6")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(attempt.wait(), 0.05)
    assert (await attempt.wait()).exit_code == 6
