"""What a command finds when it starts, and what can't be started."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands import run, start
from workers.executor import Executor
from workron.models import Outcome, Reason

# --- what it finds ---------------------------------------------------------------------------------------------------


async def test_standard_input_is_empty(executor: Executor) -> None:
    assert await run(executor, "cat; readlink /proc/self/fd/0") == (Outcome(None, exit_code=0), b"/dev/null\n")


LIST_FILES = "exec ls /proc/self/fd"


@pytest.mark.parametrize(
    "fields",
    [
        {"command": LIST_FILES},
        {"command": LIST_FILES, "cwd": "/"},
        {"command": LIST_FILES + " #" * 100_000},
        {"argv": ("ls", "/proc/self/fd")},
        {"argv": ("/bin/ls", "/proc/self/fd")},
    ],
)
async def test_nothing_but_standard_files_is_open_whatever_the_worker_inherited(fields: dict[str, Any]) -> None:
    inherited = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(inherited, True)
    try:
        async with Executor(kill_grace_s=1) as executor:
            neighbour = start(executor, "sleep 60", fence=2)
            _, output = await run(executor, **fields)
            neighbour.lose()
    finally:
        os.close(inherited)
    assert output.split() == [b"0", b"1", b"2", b"3"]  # 3 is ls's own


async def test_a_worker_without_standard_files_gives_its_commands_theirs(tmp_path: Path) -> None:
    script = """
import asyncio, sys
from pathlib import Path
from tests.commands import claim_for
from workers.executor import Executor
from workers.guardian import boottime_s

async def main():
    async with Executor(kill_grace_s=1) as executor:
        attempt = executor.start(claim_for("readlink /proc/$$/fd/0; echo out; echo err >&2"), boottime_s() + 100)
        await attempt.wait()
        Path(sys.argv[1]).write_bytes(attempt.output.take().data)

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "sh", sys.executable, "-c", script, tmp_path / "output"),
        cwd=Path(__file__).parents[1],
    )
    assert await process.wait() == 0
    assert (tmp_path / "output").read_text() == "/dev/null\nout\nerr\n"


@pytest.mark.parametrize("cwd", [None, "/"])
async def test_signals_that_python_ignores_end_it_as_usual(executor: Executor, cwd: str | None) -> None:
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        outcome, _ = await run(executor, f"kill -{number} $$", cwd=cwd)
        assert outcome.signal == number


@pytest.fixture
def hostile_parent() -> Iterator[None]:
    """The state of signals that a worker could inherit at worst: all are ignored and blocked."""
    numbers = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    mask = signal.pthread_sigmask(signal.SIG_SETMASK, numbers)
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    for number, handler in before.items():
        signal.signal(number, handler)


SHOW_SIGNALS = "exec grep -E '^Sig(Blk|Ign)' /proc/self/status"


@pytest.mark.parametrize(
    "fields",
    [
        {"command": SHOW_SIGNALS},
        {"command": SHOW_SIGNALS, "cwd": "/"},
        {"command": SHOW_SIGNALS + " #" * 100_000},
        {"argv": ("grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")},
        {"argv": ("/bin/grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")},
    ],
)
@pytest.mark.usefixtures("hostile_parent")
async def test_no_signal_is_ignored_or_blocked_whatever_the_worker_inherited(fields: dict[str, Any]) -> None:
    async with Executor(kill_grace_s=1) as executor:
        outcome, output = await run(executor, **fields)
    known = sum(1 << number - 1 for number in signal.valid_signals())  # the C library ignores two of its own
    masks = [int(line.split()[1], 16) & known for line in output.decode().splitlines()]
    assert (outcome.exit_code, masks) == (0, [0, 0])


async def test_it_leads_a_session_and_group_of_its_own(executor: Executor) -> None:
    _, output = await run(executor, argv=("cat", "/proc/self/stat"))
    pid, _, _, _, group, session = output.split()[:6]
    assert group == session == pid


async def test_it_runs_in_its_working_directory(executor: Executor, tmp_path: Path) -> None:
    _, output = await run(executor, "pwd", cwd=str(tmp_path))
    assert output.decode().strip() == str(tmp_path.resolve())


async def test_the_environment_is_an_allow_list_and_what_the_job_and_its_attempt_say() -> None:
    worker = {
        b"PATH": os.environb[b"PATH"],
        b"LC_ALL": b"C.UTF-8",
        b"WORKRON_API_KEY": b"secret",
        b"WORKRON_REDIS": b"redis://secret",
        b"AWS_SECRET_ACCESS_KEY": b"secret",
        b"TERM": b"xterm",
    }
    async with Executor(kill_grace_s=1, environ=worker) as executor:
        job = {"COLOUR": "blue", "LC_ALL": "C", "WORKRON_JOB_ID": "forged", "WORKRON_FENCE": "0", "WORKRON_GUARD": ""}
        _, output = await run(executor, argv=("env",), env=job, fence=7, attempt=2, queue="slow")
        folder = Path(executor.notes.folder or "")
    environment = dict(line.split("=", 1) for line in output.decode().splitlines())
    assert len(environment.pop("WORKRON_GUARD")) == 32
    files = {Path(environment.pop(name)) for name in ("WORKRON_CONTROL", "WORKRON_RESULT")}
    assert {(file.name, file.parent) for file in files} == {("7.control", folder), ("7.result", folder)}
    assert environment == {
        "PATH": os.environ["PATH"],
        "LC_ALL": "C",
        "COLOUR": "blue",
        "WORKRON_JOB_ID": "job-7",
        "WORKRON_ATTEMPT": "2",
        "WORKRON_FENCE": "7",
        "WORKRON_QUEUE": "slow",
    }


async def test_a_task_of_an_array_knows_which_one_it_is(executor: Executor) -> None:
    array = {"id": "the-array", "index": 3, "size": 5, "value": "é\n"}
    _, output = await run(executor, argv=("env",), more={"array": array})
    assert "WORKRON_ARRAY_ID=the-array\nWORKRON_ARRAY_INDEX=3\nWORKRON_ARRAY_SIZE=5\n" in output.decode()
    assert "WORKRON_ARRAY_VALUE=é\n\n" in output.decode()


async def test_the_kernel_kills_the_command_before_its_worker(executor: Executor) -> None:
    score = min(int(Path("/proc/self/oom_score_adj").read_text()) + 500, 1000)
    outcome, _ = await run(
        executor, f"until [ $(cat /proc/self/oom_score_adj) = {score} ]; do :; done", timeout_ms=9000
    )
    assert outcome.reason is None


# --- what can't be started -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"command": "true", "cwd": "/no/such"}, "the working directory /no/such can't be used: No such file or dir"),
        ({"command": "true", "cwd": "/dev/null"}, "the working directory /dev/null can't be used: Not a directory"),
        ({"argv": ("no-such-program",)}, "the program no-such-program can't be executed: No such file or directory"),
        ({"argv": ("/etc/passwd",)}, "the program /etc/passwd can't be executed: Permission denied"),
        ({"argv": ("",)}, "the program  can't be executed"),
        ({"argv": ()}, "the command can't be started: no program named"),
        ({"argv": ("echo", "a\0b")}, "the command can't be started: embedded null byte"),
        ({"command": "echo a\0b"}, "the command can't be started: embedded null byte"),
        ({"command": "echo a\0b" + "#" * 200_000}, "the command can't be started: embedded null byte"),
        ({"command": "true", "cwd": "/a\0b"}, "the command can't be started: embedded null byte"),
        ({"command": "true", "env": {"A=B": "c"}}, "the command can't be started: illegal environment variable name"),
        ({"command": "true", "env": {"A": "\ud800"}}, "the command can't be started: its text is not valid Unicode"),
        ({"argv": ("echo", "x" * 200_000)}, "the command can't be started: its arguments and environment are too"),
        ({"command": "true", "cwd": "/\udcff\x1b[2J"}, "the working directory /\ufffd␛[2J can't be used: No such"),
    ],
)
async def test_a_command_that_cannot_start_is_reported_in_one_sentence(
    executor: Executor, fields: dict[str, Any], sentence: str
) -> None:
    outcome, output = await run(executor, **fields)
    assert (outcome.reason, outcome.exit_code, output) == (Reason.SPAWN, None, b"")
    assert outcome.error is not None
    assert outcome.error.startswith(sentence)
    outcome.error.encode()


async def test_a_system_that_allows_no_more_processes_is_not_taken_for_a_fault_of_the_program() -> None:
    script = """
import asyncio, os, resource
from tests.commands import claim_for
from workers.executor import Executor
from workers.guardian import boottime_s

async def main():
    async with Executor(kill_grace_s=1) as executor:
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
        if os.getuid() == 0:
            os.setuid(65534)  # root has no such limit
        for cwd in (None, "/"):
            attempt = executor.start(claim_for("true", cwd=cwd, lease_ms=300), boottime_s() + 100)
            await attempt.wait()
            print("to be given back:", attempt.given_back)

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script),
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    ends, log = await process.communicate()
    assert b"resources exhausted" in log
    assert b"the command can't be started: Resource temporarily unavailable" in log
    assert ends.splitlines() == [b"to be given back: True"] * 2


async def test_running_out_of_descriptors_at_any_point_blames_no_job_and_leaks_none(executor: Executor) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = sorted(map(int, os.listdir("/proc/self/fd")))
    stopped = []
    for limit in range(3, before[-1] + 12):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limits[1]))
        try:
            attempt = start(executor, "echo ok #" + " " * 200_000, lease_ms=30)
            outcome = await attempt.wait()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        patch = attempt.output.take()
        assert attempt.given_back or (outcome.reason, patch and patch.data) == (None, b"ok\n")
        stopped.append(attempt.given_back)
    assert stopped[0]
    assert not stopped[-1]
    assert sorted(map(int, os.listdir("/proc/self/fd"))) == before
