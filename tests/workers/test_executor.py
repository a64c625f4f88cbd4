"""Running one command: its output, its end, and what is left of it afterwards."""

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.commands import alive, let_end_unnoticed, pid_in, run, start
from tests.conftest import WaitUntil
from workers.executor import Executor
from workron.models import OUTPUT_HEAD, OUTPUT_TAIL, Outcome, Reason

# --- how it ends -----------------------------------------------------------------------------------------------------


async def test_exit_code_0_is_success(executor: Executor) -> None:
    assert await run(executor, "echo hello") == (Outcome(None, exit_code=0), b"hello\n")


async def test_a_failure_holds_the_exit_code_and_the_end_of_the_output(executor: Executor) -> None:
    outcome, _ = await run(executor, "echo to stdout; echo to stderr >&2; exit 3")
    assert outcome == Outcome(Reason.EXIT_CODE, exit_code=3, error="exit code 3\nto stdout\nto stderr\n")


async def test_the_error_is_at_most_4_kib_of_harmless_text(executor: Executor) -> None:
    outcome, _ = await run(executor, "head -c 20000 /dev/urandom; printf '\\033[31mlast words'; exit 1")
    assert outcome.error is not None
    assert outcome.error.startswith("exit code 1\n…")
    assert outcome.error.endswith("␛[31mlast words")
    assert 4000 < len(outcome.error.encode()) <= 4096


async def test_death_by_a_signal_names_it(executor: Executor) -> None:
    outcome, _ = await run(executor, "kill -SEGV $$")
    assert outcome == Outcome(Reason.SIGNAL, signal=signal.SIGSEGV, error="killed by SIGSEGV")
    outcome, _ = await run(executor, f"kill -{signal.SIGRTMIN + 5} $$")
    assert outcome.error == f"killed by signal {signal.SIGRTMIN + 5}"


async def test_argv_is_executed_without_a_shell(executor: Executor) -> None:
    assert await run(executor, argv=("printf", "%s|", "$HOME", "a b", "*")) == (
        Outcome(None, exit_code=0),
        b"$HOME|a b|*|",
    )


async def test_a_command_that_looks_like_an_option_is_still_a_command(executor: Executor) -> None:
    outcome, output = await run(executor, "-e")
    assert outcome.exit_code == 127
    assert b"-e: not found" in output or b"-e: command not found" in output


async def test_bytes_that_are_not_utf8_and_emoji_arrive_as_they_are(executor: Executor) -> None:
    raw = b"\xff\xfe caf\xe9".decode("utf-8", "surrogateescape")
    _, output = await run(executor, argv=("printf", "%s %s", raw, "🐎"), env={"NAME": raw})
    assert output == b"\xff\xfe caf\xe9 \xf0\x9f\x90\x8e"
    _, output = await run(executor, 'printf "%s" "$NAME"', env={"NAME": raw})
    assert output == b"\xff\xfe caf\xe9"


async def test_commands_run_side_by_side(executor: Executor, tmp_path: Path) -> None:
    meet = "touch {}; until [ -e {} ]; do sleep 0.01; done"
    a, b = tmp_path / "a", tmp_path / "b"
    outcomes = await asyncio.gather(
        start(executor, meet.format(a, b), fence=1).wait(), start(executor, meet.format(b, a), fence=2).wait()
    )
    assert [outcome.reason for outcome in outcomes] == [None, None]


async def test_commands_that_end_in_the_same_moment_are_all_noticed(executor: Executor) -> None:
    attempts = [start(executor, f"echo {fence}", fence=fence) for fence in range(1, 101)]
    for attempt in attempts:
        await let_end_unnoticed(attempt)
    for attempt in attempts:
        assert (await attempt.wait()).exit_code == 0
        assert attempt.output.total == len(f"{attempt.claim.fence}\n")


# --- unusual commands ------------------------------------------------------------------------------------------------


async def test_a_command_of_a_megabyte_runs_and_finds_an_empty_standard_input(executor: Executor) -> None:
    lines = [f": {number:060d}" for number in range(20_000)]
    command = "\n".join(
        ["echo begin in $0", "cat; readlink /proc/$$/fd/0", *lines, "cat <<END", "the end", "END", "exit 5"]
    )
    assert len(command) > 1_000_000
    outcome, output = await run(executor, command)
    assert output == b"begin in sh\n/dev/null\nthe end\n"
    assert outcome.exit_code == 5


@pytest.mark.parametrize("length", [131_071, 131_072])
async def test_a_command_at_the_systems_limit_for_one_argument_runs(executor: Executor, length: int) -> None:
    command = "echo ok #"
    outcome, output = await run(executor, command + "x" * (length - len(command)))
    assert (outcome.reason, output) == (None, b"ok\n")


async def test_a_command_that_closes_its_output_and_goes_on_is_waited_for(executor: Executor) -> None:
    outcome, output = await run(executor, "echo hello; exec >&- 2>&-; sleep 0.3; exit 7")
    assert (outcome.exit_code, output) == (7, b"hello\n")


async def test_binary_output_is_kept_byte_for_byte(executor: Executor, tmp_path: Path) -> None:
    data = bytes(range(256)) * 500 + b"\0\r\n\xff"
    (tmp_path / "data").write_bytes(data)
    assert (await run(executor, argv=("cat", str(tmp_path / "data"))))[1] == data


async def test_of_100_mb_of_output_head_and_tail_are_kept_and_all_is_counted(executor: Executor) -> None:
    first, last = 10_000_001, 21_200_000
    attempt = start(executor, f"seq {first} {last}; exit 4")
    outcome = await attempt.wait()
    patch = attempt.output.take()
    assert patch is not None
    assert (patch.offset, patch.total) == (0, 9 * (last - first + 1))
    assert patch.total > 100_000_000
    assert patch.data[:OUTPUT_HEAD] == _lines(first, first + OUTPUT_HEAD // 9)[:OUTPUT_HEAD]
    assert patch.data[OUTPUT_HEAD:] == _lines(last - OUTPUT_TAIL // 9, last)[-OUTPUT_TAIL:]
    assert outcome.error is not None
    assert outcome.error.endswith(f"\n{last - 1}\n{last}\n")


def _lines(first: int, last: int) -> bytes:
    return "".join(f"{number}\n" for number in range(first, last + 1)).encode()


async def test_all_that_was_written_before_the_end_is_kept(executor: Executor, tmp_path: Path) -> None:
    written = 1 << 20
    script = f"import fcntl, os; fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, {written}); os.write(1, b'x' * {written})"
    attempt = start(executor, argv=(sys.executable, "-c", script))
    await let_end_unnoticed(attempt)
    assert await attempt.wait() == Outcome(None, exit_code=0)
    assert attempt.output.total == written


async def test_output_can_be_taken_while_the_command_runs(executor: Executor, wait_until: WaitUntil) -> None:
    attempt = start(executor, "echo early; sleep 60")
    await wait_until(lambda: attempt.output.total > 0)
    patch = attempt.output.take()
    assert patch is not None
    assert patch.data == b"early\n"
    attempt.lose()
    await attempt.wait()


async def test_a_flood_of_output_leaves_the_event_loop_to_others(executor: Executor) -> None:
    attempt = start(executor, argv=("cat", "/dev/zero"))
    turns = 0
    while attempt.output.total < 300_000_000:
        await asyncio.sleep(0)
        turns += 1
    attempt.lose()
    await attempt.wait()
    # Nothing but bounded reads between two turns: 300 MB in pieces of a pipe's 64 KiB.
    assert turns > 4000


async def test_memory_stays_flat_under_a_gigabyte_of_output() -> None:
    script = """
import asyncio, re, sys
from pathlib import Path
from tests.commands import claim_for
from workers.executor import Executor
from workers.guardian import boottime_s

def peak_kb():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

async def main():
    async with Executor(kill_grace_s=1) as executor:
        await executor.run(claim_for("echo warm"), deadline=boottime_s() + 100)
        before = peak_kb()
        attempt = executor.start(claim_for("head -c 1073741824 /dev/zero"), boottime_s() + 100)
        outcome = await attempt.wait()
        print(outcome.exit_code, attempt.output.total, peak_kb() - before)

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE
    )
    output, _ = await process.communicate()
    exit_code, total, grown_kb = map(int, output.split())
    assert (exit_code, total) == (0, 1 << 30)
    assert grown_kb < 20_000


# --- what it leaves behind -------------------------------------------------------------------------------------------


async def test_background_children_are_killed_when_the_first_process_exits(
    executor: Executor, tmp_path: Path, wait_until: WaitUntil
) -> None:
    child = tmp_path / "child"
    outcome, _ = await run(
        executor, f"sh -c 'trap \"\" TERM; echo $$ > {child}; sleep 60' & until [ -s {child} ]; do :; done"
    )
    assert outcome.reason is None
    pid = pid_in(child)
    assert pid is not None
    await wait_until(lambda: not alive(pid), within_s=5)


@pytest.mark.parametrize("daemon", ["sleep 60", "yes"])
async def test_a_daemon_that_holds_the_output_delays_the_end_by_less_than_a_second(
    executor: Executor, tmp_path: Path, doomed: list[int], wait_until: WaitUntil, daemon: str
) -> None:
    file, ended = tmp_path / "daemon", tmp_path / "ended"
    open_files = len(os.listdir("/proc/self/fd"))
    command = f"setsid sh -c 'echo $$ > {file}; exec {daemon}' & until [ -s {file} ]; do :; done; touch {ended}"
    outcome, _ = await run(executor, command)
    delay_s = time.time() - ended.stat().st_mtime
    pid = pid_in(file)
    assert pid is not None
    doomed.append(pid)
    assert outcome.reason is None
    assert delay_s < 1
    assert len(os.listdir("/proc/self/fd")) == open_files
    await wait_until(lambda: not alive(pid))


async def test_nothing_is_left_open_and_no_process_unreaped(executor: Executor) -> None:
    before, children_before = len(os.listdir("/proc/self/fd")), children()
    for command in ("true", "exit 1", "sleep 60 & exit 0", "exec >&- 2>&-", "head -c 200000 /dev/zero"):
        await run(executor, command)
    await run(executor, argv=("no-such-program",))
    await run(executor, "true", cwd="/no/such")
    await run(executor, ":" + " " * 200_000)
    await run(executor, "sleep 60", timeout_ms=10)
    assert len(os.listdir("/proc/self/fd")) == before
    assert children() == children_before
    assert str(executor.guardian.pid) in children()
    assert not executor.attempts


def children() -> list[str]:
    """The processes that this one has started: with the servers of other tests among them."""
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


# --- unusual systems -------------------------------------------------------------------------------------------------


async def test_without_pidfds_the_end_is_noticed_all_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refused(pid: int) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(os, "pidfd_open", refused)
    async with Executor(kill_grace_s=0.2) as executor:
        outcome, output = await run(executor, "echo hello; exec >&- 2>&-; exit 3")
        assert (outcome.exit_code, output) == (3, b"hello\n")
        outcome, _ = await run(executor, "trap '' TERM; while :; do sleep 0.01; done", timeout_ms=50)
        assert outcome.reason is Reason.TIMEOUT


async def test_an_exit_code_that_someone_else_took_is_not_success(executor: Executor) -> None:
    attempt = start(executor, "exit 3")
    await let_end_unnoticed(attempt)
    assert attempt._process is not None
    os.waitpid(attempt._process.pid, os.WNOHANG)  # noqa: ASYNC222
    assert await attempt.wait() == Outcome(Reason.WORKER_LOST, error="ended, but its worker could not learn how")


async def test_exit_codes_survive_a_parent_that_ignores_its_children() -> None:
    script = """
import asyncio, json
from tests.commands import claim_for
from workers.executor import Executor
from workers.guardian import boottime_s

async def main():
    async with Executor(kill_grace_s=1) as executor:
        outcome = await executor.run(claim_for("exit 9"), deadline=boottime_s() + 100)
        print(json.dumps(outcome.exit_code))

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])",
        *(sys.executable, "-c", script),
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert json.loads(output) == 9
