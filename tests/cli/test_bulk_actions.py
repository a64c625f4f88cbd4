"""Bulk actions, unique keys and `rm` at the command line, against a real stack."""

import re
import uuid

import pytest

from tests.command_line import CommandLine
from workron.cli.bulk import progress
from workron.client.documents import ActionDoc


def submit(workron: CommandLine, *args: str) -> str:
    submitted = workron("submit", *args)
    assert submitted.code == 0, submitted.err
    return submitted.out.strip()


def status(workron: CommandLine, job_id: str) -> str:
    return str(workron("show", job_id, "-o", "json").document["status"])


@pytest.fixture
def queue() -> str:
    """A queue of which no worker takes jobs."""
    return f"q-{uuid.uuid4().hex}"


def test_all_jobs_of_a_queue_are_cancelled_retried_moved_and_removed(workron: CommandLine, queue: str) -> None:
    ids = [submit(workron, "--queue", queue, "true") for _ in range(3)]
    counted = workron("cancel", "--queue", queue, "--dry-run", "--wait", "-o", "json")
    assert counted.code == 0, counted.err
    (action,) = counted.document
    assert (action["matched"], action["done"], action["state"]) == (3, 0, "done")
    assert workron("cancel", "--queue", queue, "--all", "--wait").code == 0
    assert [status(workron, job_id) for job_id in ids] == ["cancelled"] * 3
    assert workron("retry", "--queue", queue, "--status", "cancelled", "--all", "--wait").code == 0
    assert [status(workron, job_id) for job_id in ids] == ["pending"] * 3
    assert workron("mv", "--queue", queue, "--to-queue", "default", "--all", "--wait").code == 0
    assert workron("wait", *ids).code == 0
    done = workron("rm", ids[0])
    assert (done.code, done.out) == (0, "")
    assert workron("show", ids[0]).code == 3


def test_without_wait_the_id_of_the_action_is_printed(workron: CommandLine, queue: str) -> None:
    action = workron("cancel", "--queue", queue, "--all").out.strip()
    assert re.fullmatch(r"[0-9A-Za-z]{22}", action)
    listed = {one["id"]: one for one in workron("actions", "-o", "json").document}
    assert listed[action]["filter"]["queue"] == queue


def test_a_failed_change_is_reported(workron: CommandLine, queue: str) -> None:
    first = submit(workron, "--queue", queue, "--unique", queue, "true")
    workron("cancel", first)
    second = submit(workron, "--queue", queue, "--unique", queue, "true")
    done = workron("retry", "--queue", queue, "--all", "--wait")
    assert done.code == 4
    assert f"job {second} holds its unique key" in done.err


@pytest.mark.parametrize(
    "args",
    [
        ("cancel",),
        ("cancel", "0000000000000000000000", "--queue", "q", "--all"),
        ("retry", "--queue", "q"),
        ("rm", "--status", "done"),
        ("mv", "--queue", "q", "--all"),
        ("mv", "--to-queue", "q"),
        ("cancel", "--all", "--tasks", "1"),
        ("cancel", "--all", "--created-after", "yesterday"),
        ("cancel", "--all", "--status", "done"),
        ("submit", "--on-conflict", "reject", "true"),
        ("submit", "--unique", "k", "--on-conflict", "ignore", "true"),
        ("submit", "--unique", "k", "--unique-until", "tomorrow", "true"),
    ],
)
def test_a_dangerous_or_senseless_command_does_nothing(workron: CommandLine, args: tuple[str, ...]) -> None:
    assert workron(*args).code == 2


def test_a_job_that_has_not_ended_is_not_removed(workron: CommandLine, queue: str) -> None:
    job_id = submit(workron, "--queue", queue, "true")
    refused = workron("rm", job_id)
    assert (refused.code, "has not ended" in refused.err) == (4, True)


def test_an_action_is_aborted(workron: CommandLine, queue: str) -> None:
    action = workron("cancel", "--queue", queue, "--all").out.strip()
    workron("actions", "--abort", action)
    assert workron("actions", "--abort", "0000000000000000000000").code == 3


def test_a_second_job_with_a_unique_key(workron: CommandLine, queue: str) -> None:
    first = submit(workron, "--queue", queue, "--unique", queue, "true")
    assert submit(workron, "--queue", queue, "--unique", queue, "true") == first
    refused = workron("submit", "--queue", queue, "--unique", queue, "--on-conflict", "reject", "true")
    assert (refused.code, first in refused.err) == (4, True)
    second = submit(workron, "--queue", queue, "--unique", queue, "--on-conflict", "replace", "true")
    assert status(workron, first) == "cancelled"
    shown = workron("show", second, "-o", "json").document
    assert shown["unique"] == {"key": queue, "until": "finished", "on_conflict": "replace", "ttl": 86400}
    assert f"{queue} until finished, at most 1d00h" in " ".join(workron("show", second).out.split())
    third = ("--unique", f"{queue}-3", "--unique-until", "started", "--unique-ttl", "90s")
    shown = workron("show", submit(workron, "--queue", queue, *third, "true"), "-o", "json").document
    assert (shown["unique"]["until"], shown["unique"]["ttl"]) == ("started", 90)


def test_progress_is_one_line() -> None:
    action: ActionDoc = {
        "id": "x", "action": "retry", "state": "running", "filter": {}, "to": None, "dry_run": False,
        "created_at": "", "finished_at": None, "total": 700_000, "looked": 350_000, "matched": 12_000, "done": 11_999,
        "failed": 1, "first_error": None,
    }  # fmt: skip
    assert progress(action) == "retry: 50% of 700,000 jobs checked, 11,999 done, 1 failed"
    assert progress(action | {"dry_run": True, "total": 0, "looked": 0, "failed": 0}) == (  # type: ignore[arg-type]
        "retry: 0% of 0 jobs checked, 12,000 match"
    )
