"""Trouble of the host is waited for, and the job is given back: no command is blamed for it."""

import errno
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.commands import claim_for, run, start
from tests.conftest import WaitUntil
from workers.command import is_of_the_host
from workers.executor import Executor
from workers.guardian import boottime_s

TROUBLE = ("ENOSPC", "EDQUOT", "EROFS", "EMFILE", "ENFILE", "ENOMEM", "EAGAIN", "EIO", "ESTALE", "ENOTCONN", "ENODEV")


@pytest.mark.parametrize("name", TROUBLE)
def test_an_error_of_the_host_is_not_taken_for_one_of_the_command(name: str) -> None:
    assert is_of_the_host(OSError(getattr(errno, name), name, b"/usr/bin/tool"))


@pytest.mark.parametrize("name", ["ENOENT", "EACCES", "ENOEXEC", "ELOOP"])
def test_a_program_that_is_not_there_is_the_fault_of_the_command_but_a_missing_shell_is_not(name: str) -> None:
    assert not is_of_the_host(OSError(getattr(errno, name), name, b"/usr/bin/tool"))
    assert is_of_the_host(OSError(getattr(errno, name), name, b"/bin/sh"))


def test_arguments_that_are_too_long_for_the_shell_are_the_fault_of_the_command() -> None:
    assert not is_of_the_host(OSError(errno.E2BIG, "too long", b"/bin/sh"))


async def test_a_job_whose_working_directory_is_the_shell_is_not_given_back(
    executor: Executor,
) -> None:
    attempt = start(executor, "true", cwd="/bin/sh", lease_ms=30)
    outcome = await attempt.wait()

    assert not attempt.given_back
    assert outcome.error == "the working directory /bin/sh can't be used: Not a directory"


@pytest.mark.parametrize("cwd", [None, "/"])
async def test_a_host_without_a_shell_gives_the_job_back(
    executor: Executor, monkeypatch: pytest.MonkeyPatch, cwd: str | None
) -> None:
    monkeypatch.setattr("workers.command.SHELL", b"/no/such/shell")

    attempt = start(executor, "true", cwd=cwd, lease_ms=30)
    await attempt.wait()

    assert attempt.given_back


@contextmanager
def full_disk() -> Iterator[None]:
    """No file can grow, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def parents(_: str) -> bytes:
    return b'{"a": "b"}'


async def test_a_job_with_parents_is_given_back_while_the_disk_is_full_and_runs_afterwards() -> None:
    async with Executor(kill_grace_s=1, parents=parents) as executor:
        with full_disk():
            attempt = start(executor, "true", lease_ms=30, more={"parents": True})
            await attempt.wait()
        assert attempt.given_back

        outcome, output = await run(executor, 'cat "$WORKRON_PARENTS"', fence=2, more={"parents": True})
        assert (outcome.reason, output) == (None, b'{"a": "b"}')


async def test_without_a_temporary_directory_jobs_wait_until_there_is_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "later"))
    monkeypatch.setattr("workers.command_files.MEMORY", str(tmp_path / "later"))
    async with Executor(kill_grace_s=1) as executor:
        attempt = start(executor, "true", lease_ms=30)
        await attempt.wait()
        assert attempt.given_back

        (tmp_path / "later").mkdir()
        outcome, _ = await run(executor, "echo 1 > $WORKRON_RESULT", fence=2)
        assert (outcome.reason, outcome.result) == (None, "1")


async def test_a_result_that_cannot_be_read_for_lack_of_descriptors_is_read_later(
    executor: Executor, wait_until: WaitUntil, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    claim: Any = claim_for(f"echo 1 > $WORKRON_RESULT; until [ -e {go} ]; do sleep 0.02; done")
    attempt = executor.start(claim, boottime_s() + 1000)
    await wait_until(lambda: attempt.started)
    go.touch()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        await wait_until(lambda: executor.exhaustion.lasts)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

    outcome = await attempt.wait()
    assert (outcome.reason, outcome.result) == (None, "1")


async def test_a_read_only_host_keeps_the_files_of_commands_in_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    monkeypatch.setattr("workers.command_files.MEMORY", str(tmp_path))
    async with Executor(kill_grace_s=1) as executor:
        outcome, _ = await run(executor, "echo 1 > $WORKRON_RESULT")
        assert (outcome.reason, outcome.result) == (None, "1")
        assert Path(executor.notes.folder or "").parent == tmp_path
    assert list(tmp_path.iterdir()) == []
