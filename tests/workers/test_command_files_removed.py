"""Commands that remove the directory of their worker's notes: it is made again, and no other job suffers."""

import asyncio
import errno
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.commands import LEASE_S, claim_for, run
from tests.conftest import WaitUntil
from tests.scripted_source import Scripted, working
from workers.command_files import PREFIX
from workers.executor import Executor
from workers.guardian import boottime_s
from workron.models import Outcome, Reason

WAYS = {
    "emptied": 'rm -rf "$TMPDIR"/*',
    "temporary directory removed": 'rm -rf "$TMPDIR"',
    "removed": 'rmdir "$NOTES"',
    "moved": 'mv "$NOTES" "$TMPDIR/elsewhere"',
    "replaced by a file": 'rm -rf "$NOTES"; echo nothing > "$NOTES"',
    "replaced by a link": 'rm -rf "$NOTES"; ln -s /nowhere "$NOTES"',
    "replaced by a directory": 'rm -rf "$NOTES"; mkdir -m 755 "$NOTES"',
    "closed": 'chmod 0 "$NOTES"',
}
SAYS = """cat "$WORKRON_PARENTS" && echo '{"rows": 3}' > "$WORKRON_RESULT" && echo progress=1 > "$WORKRON_CONTROL" """


async def parents(_: str) -> bytes:
    return b"{}"


@pytest.fixture
async def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Executor]:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    environ = os.environb | {b"TMPDIR": os.fsencode(folder)}
    async with Executor(kill_grace_s=0.3, parents=parents, environ=environ) as executor:
        yield executor


async def remove(executor: Executor, how: str) -> None:
    assert executor.notes.folder is not None
    outcome, output = await run(executor, WAYS[how], env={"NOTES": executor.notes.folder})
    assert outcome == Outcome(None, exit_code=0), output


@pytest.mark.parametrize("how", WAYS)
async def test_after_one_command_no_other_had_its_files_until_the_worker_was_restarted(
    executor: Executor, how: str
) -> None:
    for _ in range(2):
        await remove(executor, how)
        outcome, output = await run(executor, SAYS, fence=2, more={"parents": True})
        assert (outcome, output) == (Outcome(None, exit_code=0, result='{"rows":3}', progress="1"), b"{}")
        assert executor.notes.folder is not None
        assert os.stat(executor.notes.folder).st_mode & 0o777 == 0o700
        assert os.listdir(executor.notes.folder) == []


@pytest.mark.parametrize("how", WAYS)
async def test_a_command_that_had_begun_before_can_leave_a_result_too(
    executor: Executor, wait_until: WaitUntil, tmp_path: Path, how: str
) -> None:
    source = Scripted()
    async with working(source) as worker:
        notes = worker._executor.notes
        go = tmp_path / "go"
        source.claims(claim_for(f"until [ -e {go} ]; do sleep 0.05; done; echo 7 > $WORKRON_RESULT", fence=7))
        worker._look_again()
        await wait_until(lambda: worker.held)
        await run(executor, WAYS[how], env={"NOTES": notes.folder})
        await wait_until(notes._is_there)
        go.touch()
        await wait_until(lambda: [result for results in source.results for result in results])
        [[result]] = [results for results in source.results if results]
        assert result.outcome.result == "7"


async def test_a_directory_of_another_user_is_left_alone(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    before = executor.notes.folder
    await remove(executor, "replaced by a directory")
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    outcome, _ = await run(executor, SAYS, fence=2, more={"parents": True})
    assert outcome.result == '{"rows":3}'
    assert executor.notes.folder != before
    assert os.path.basename(executor.notes.folder or "").startswith(PREFIX)


async def test_a_full_disk_under_the_directory_is_no_fault_of_the_job(
    executor: Executor, wait_until: WaitUntil, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    await remove(executor, "removed")
    with monkeypatch.context() as patched:
        patched.setattr(os, "mkdir", full)
        attempt = executor.start(claim_for(SAYS, fence=2, more={"parents": True}), boottime_s() + LEASE_S)
        await wait_until(lambda: executor.exhaustion.lasts)
        assert not attempt.started
    assert (await attempt.wait()).result == '{"rows":3}'


async def test_a_disk_that_stays_full_gives_the_job_back(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    await remove(executor, "removed")
    with monkeypatch.context() as patched:
        patched.setattr(os, "mkdir", full)
        attempt = executor.start(claim_for("true", fence=2, lease_ms=300), boottime_s() + LEASE_S)
        outcome = await asyncio.wait_for(attempt.wait(), 60)
        assert (attempt.given_back, outcome.reason) == (True, Reason.WORKER_LOST)
