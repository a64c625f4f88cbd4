"""What a command says in its files: results, progress, how long to wait; and what is left of them."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.commands import alive, run, start
from tests.conftest import WaitUntil
from tests.scripted_source import Scripted, working
from workers.command_files import PREFIX, Notes
from workers.executor import Executor
from workers.parents import Parents
from workers.results import MAX_OUTPUT
from workron.errors import StoreUnavailable
from workron.models import Claim, Outcome, Parent, Reason, Status


def left(executor: Executor) -> list[str]:
    assert executor.notes.folder is not None
    return os.listdir(executor.notes.folder)


async def test_a_result_is_read_and_its_file_removed(executor: Executor) -> None:
    outcome, _ = await run(executor, """echo '{"rows": 3}' > "$WORKRON_RESULT" """)
    assert outcome == Outcome(None, exit_code=0, result='{"rows":3}')
    assert left(executor) == []


async def test_the_files_are_private(executor: Executor) -> None:
    assert executor.notes.folder is not None
    assert os.stat(executor.notes.folder).st_mode & 0o777 == 0o700
    _, output = await run(executor, 'ls -l "$WORKRON_RESULT" "$WORKRON_CONTROL"; echo "${WORKRON_PARENTS-unset}"')
    assert output.endswith(b"unset\n")
    assert output.count(b"No such file") == 2


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("echo '{' > $WORKRON_RESULT", "is not JSON"),
        ("head -c 70000 /dev/zero | tr '\\0' 1 > $WORKRON_RESULT", "is longer than 65,536 bytes"),
    ],
)
async def test_a_result_that_cannot_be_stored_is_reported_and_the_job_is_done(
    executor: Executor, command: str, complaint: str
) -> None:
    outcome, _ = await run(executor, command)
    assert (outcome.reason, outcome.exit_code, outcome.result) == (None, 0, None)
    assert outcome.error == f"its result was not kept: what it wrote to $WORKRON_RESULT {complaint}"
    outcome, _ = await run(executor, f"{command}; seq 10000; exit 3")
    assert outcome.error is not None
    first, second, *_, last = outcome.error.splitlines()
    assert (first, second.startswith("its result was not kept"), last) == ("exit code 3", True, "10000")
    assert len(outcome.error.encode()) <= 4096


@pytest.mark.parametrize(
    "command",
    [
        "mkfifo $WORKRON_RESULT $WORKRON_CONTROL",
        "mkdir -p $WORKRON_RESULT/a/b $WORKRON_CONTROL",
        "ln -s /etc/passwd $WORKRON_RESULT; ln -s /dev/zero $WORKRON_CONTROL",
        "ln -s /nowhere $WORKRON_RESULT; ln -s $WORKRON_CONTROL $WORKRON_CONTROL",
        ": > $WORKRON_RESULT; : > $WORKRON_CONTROL",
    ],
)
async def test_files_that_are_none_are_passed_over_and_removed(executor: Executor, command: str) -> None:
    outcome, _ = await asyncio.wait_for(run(executor, command), 10)
    assert (outcome.reason, outcome.result, outcome.progress, outcome.error) == (None, None, None, None)
    assert left(executor) == []


@pytest.mark.parametrize(
    ("written", "wait_ms"),
    [
        ("WORKRON_RETRY_AFTER=30s", 30_000),
        ("WORKRON_RETRY_AFTER=5", 5_000),
        ("WORKRON_RETRY_AFTER=1s\\nWORKRON_RETRY_AFTER=2m", 120_000),
        ("WORKRON_RETRY_AFTER=soon", None),
        ("WORKRON_RETRY_AFTER=", None),
        ("WORKRON_RETRY_AFTER=" + "9" * 400, 366 * 86_400_000),
        ("RETRY_AFTER=3s", None),
    ],
)
async def test_exit_code_75_asks_for_a_wait(executor: Executor, written: str, wait_ms: int | None) -> None:
    outcome, _ = await run(executor, f'printf "{written}\\n" >> $WORKRON_CONTROL; exit 75')
    assert (outcome.reason, outcome.exit_code, outcome.retry_after_ms) == (Reason.EXIT_CODE, 75, wait_ms)


async def test_other_exit_codes_ask_for_none(executor: Executor) -> None:
    for code in (0, 1, 74):
        outcome, _ = await run(executor, f"echo WORKRON_RETRY_AFTER=30s > $WORKRON_CONTROL; exit {code}")
        assert outcome.retry_after_ms is None


@pytest.mark.parametrize(
    ("command", "progress"),
    [
        ("echo progress=0.4", "0.4"),
        ("echo 0.4", "0.4"),
        ("echo 0.4; echo copying files", "copying files"),
        ("printf 'half\\n\\n'", "half"),
        ("echo 0.5; echo WORKRON_RETRY_AFTER=3s", "0.5"),
        ("yes | head -c 1000000; echo progress=end", "end"),
        ("head -c 100000 /dev/urandom; echo; echo progress=end", "end"),
        ("printf '\\033[2J'", "␛[2J"),
        ("printf '50%%\\f of it\\n'", "50%␌ of it"),
        ("printf '50%%\\342\\200\\250 of it\\n'", "50%\u2028 of it"),
        ("printf '10%%\\r20%%\\r\\n'", "20%"),
        ("head -c 3000 /dev/zero | tr '\\0' x", "x" * 200),
    ],
)
async def test_the_last_line_that_was_written_is_the_progress(executor: Executor, command: str, progress: str) -> None:
    outcome, _ = await run(executor, f"({command}) >> $WORKRON_CONTROL")
    assert outcome.progress == progress
    assert left(executor) == []


async def test_of_a_command_that_was_lost_nothing_counts(executor: Executor, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    attempt = start(executor, f"echo 1 > $WORKRON_RESULT; echo 1 > $WORKRON_CONTROL; touch {ready}; sleep 60")
    while not ready.exists():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    attempt.lose()
    outcome = await attempt.wait()
    assert (outcome.reason, outcome.result, outcome.progress) == (Reason.WORKER_LOST, None, None)
    assert left(executor) == []


async def test_progress_is_sent_while_the_command_runs_and_again_when_that_failed(wait_until: WaitUntil) -> None:
    source = Scripted()
    source.refusals = 1
    script = "echo 0.1 > $WORKRON_CONTROL; sleep 1.2; echo 0.2 >> $WORKRON_CONTROL; sleep 60"
    claim = Claim("job-1", 1, 1, 30_000, "default", command=script)
    source.claims(claim)
    async with working(source) as worker:
        await wait_until(lambda: [patch.progress for patch in source.written] == ["0.1", "0.2"])
        assert all(patch.data == b"" for patch in source.written)
        assert left(worker._executor) == ["1.control"]


def test_progress_does_not_list_what_commands_leave_in_the_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    notes.open()
    assert notes.folder is not None
    try:
        for fence, said in ((1, "0.1"), (2, "0.2"), (4, "0.4")):
            Path(notes.folder, f"{fence}.control").write_text(f"{said}\n")
        with monkeypatch.context() as patch:
            for listing in ("listdir", "scandir"):
                patch.setattr(os, listing, lambda *_: pytest.fail("the directory was listed"))
            assert list(notes.progress([1, 2, 3])) == [(1, "0.1"), (2, "0.2")]
            assert list(notes.progress([1, 2, 3])) == []
    finally:
        notes.close()


class Away(Scripted):
    """A source whose store is away the first time that it is asked for parents."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_for: list[str] = []

    async def parents(self, job_id: str) -> list[Parent]:
        self.asked_for.append(job_id)
        if len(self.asked_for) == 1:
            raise StoreUnavailable("away")
        return [Parent("p1", Status.DONE, "first", {"rows": [1]}), Parent("p2", None, None, None, left_out=True)]


@pytest.fixture
async def informed() -> AsyncIterator[Executor]:
    async with Executor(kill_grace_s=0.3, parents=Parents(Away()).document) as executor:
        yield executor


async def test_parents_are_in_a_file_for_the_command_of_a_job_that_has_some(informed: Executor) -> None:
    _, output = await run(informed, 'cat "$WORKRON_PARENTS"', more={"parents": True})
    assert output == (
        b'{"p1":{"name":"first","status":"done","result":{"rows":[1]}},'
        b'"p2":{"name":null,"status":null,"result":null,"left_out":true}}'
    )
    assert left(informed) == []
    _, output = await run(informed, 'echo "${WORKRON_PARENTS-unset}"')
    assert output == b"unset\n"


async def test_a_job_that_is_cancelled_while_its_parents_are_asked_for_is_not_started() -> None:
    async def never(_: str) -> bytes:
        await asyncio.sleep(60)
        return b""

    async with Executor(kill_grace_s=0.3, parents=never) as executor:
        for end, reason in (("cancel", Reason.CANCELLED), ("stop", Reason.WORKER_LOST), ("lose", Reason.WORKER_LOST)):
            attempt = start(executor, "true", more={"parents": True})
            await asyncio.sleep(0.05)
            getattr(attempt, end)()
            outcome = await asyncio.wait_for(attempt.wait(), 5)
            assert (outcome.reason, attempt.started) == (reason, False)


async def test_a_job_whose_parents_cannot_be_had_says_so() -> None:
    async def broken(_: str) -> bytes:
        raise ValueError("no such thing")

    async with Executor(kill_grace_s=0.3, parents=broken) as executor:
        outcome, _ = await run(executor, "true", more={"parents": True})
        assert outcome.reason is Reason.SPAWN
        assert "no such thing" in (outcome.error or "")


async def test_the_directory_goes_with_its_worker() -> None:
    async with Executor(kill_grace_s=0.3) as executor:
        folder = Path(executor.notes.folder or "")
        await run(executor, f"touch {folder}/more; mkdir {folder}/inner; touch {folder}/inner/x; ln -s / {folder}/root")
        assert folder.exists()
    assert not folder.exists()


HOLD = """import sys
from workers.command_files import Notes
n = Notes(); n.open(); print(n.folder, flush=True); sys.stdin.read()"""


def test_the_directory_of_a_dead_worker_is_removed_by_the_next_and_that_of_a_living_one_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    env = os.environ | {"TMPDIR": str(tmp_path)}
    with contextlib.ExitStack() as stack:
        held = []
        for _ in range(2):
            process = stack.enter_context(
                subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
            )
            assert process.stdout is not None
            held.append((process, Path(process.stdout.readline().decode().strip())))
        (dead, its_folder), (living, other) = held
        dead.kill()
        dead.wait()
        (its_folder / "7.result").write_text("1")
        foreign = tmp_path / f"{PREFIX}link"
        foreign.symlink_to(tmp_path)
        for path in (its_folder, other):
            os.utime(path, (time.time() - 100, time.time() - 100))
        notes = Notes()
        notes.open()
        assert (its_folder.exists(), other.exists(), foreign.is_symlink()) == (False, True, True)
        notes.close()
        living.kill()


async def test_the_guardian_removes_the_directory_of_a_worker_that_was_killed(
    wait_until: WaitUntil, tmp_path: Path
) -> None:
    script = (
        "import asyncio, sys\n"
        "from tests.commands import start\n"
        "from workers.executor import Executor\n"
        "async def main():\n"
        "    async with Executor(kill_grace_s=1) as executor:\n"
        "        attempt = start(executor, 'echo 1 > $WORKRON_CONTROL; echo $$ > ' + sys.argv[1] + '; sleep 60')\n"
        "        print(executor.notes.folder, flush=True)\n"
        "        await attempt.wait()\n"
        "asyncio.run(main())\n"
    )
    pid_file = tmp_path / "pid"
    command = [sys.executable, "-c", script, str(pid_file)]
    env = os.environ | {"TMPDIR": str(tmp_path)}
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, env=env)
    assert process.stdout is not None
    folder = Path((await process.stdout.readline()).decode().strip())
    await wait_until(lambda: pid_file.exists() and pid_file.read_text().endswith("\n"))
    process.send_signal(signal.SIGKILL)
    await process.wait()
    await wait_until(lambda: not folder.exists())
    assert not alive(int(pid_file.read_text()))


async def test_large_results_travel_in_calls_of_bounded_size(wait_until: WaitUntil, tmp_path: Path) -> None:
    source = Scripted()
    go = tmp_path / "go"
    result = "{ printf '\"'; head -c 60000 /dev/zero | tr '\\0' x; printf '\"'; } > $WORKRON_RESULT"
    script = f"until [ -e {go} ]; do sleep 0.01; done; {result}"
    source.claims(*(Claim(f"job-{n}", n, 1, 30_000, "default", command=script) for n in range(1, 41)))
    async with working(source, slots=40) as worker:
        await wait_until(lambda: len(worker.held) == 40)
        go.touch()
        await wait_until(lambda: sum(map(len, source.results)) == 40)
    sizes = [sum(len(one.outcome.result or "") for one in results) for results in source.results]
    assert sum(sizes) == 40 * 60_002
    assert max(sizes) <= MAX_OUTPUT
