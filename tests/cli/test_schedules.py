"""Schedules from the command line."""

import json
import time

import pytest

from tests.command_line import CommandLine
from tests.patience import Patience


def test_a_schedule_is_put_shown_listed_run_paused_and_removed(workron: CommandLine) -> None:
    ran = workron(
        *("schedules", "put", "nightly", "--cron", "30 2 * * 1-5", "--tz", "Europe/Berlin", "--overlap", "skip"),
        *("--name", "report", "--", "sh", "-c", 'echo "$WORKRON_SCHEDULE"'),
    )
    assert ran.code == 0, ran.err
    assert "every weekday at 02:30 (Europe/Berlin)" in ran.out
    assert ran.out.count(" at 02:30 CE") == 5

    job = workron("schedules", "run", "nightly").out.strip()
    assert workron("wait", job).code == 0
    assert workron("logs", job).out == "nightly\n"
    assert f"manual {job}" in workron("schedules", "show", "nightly").out

    listed = workron("schedules", "-o", "json").document
    assert [one["name"] for one in listed if one["name"] == "nightly"] == ["nightly"]
    assert "every weekday" in workron("schedules").out

    assert "paused" in workron("schedules", "pause", "nightly").out
    assert workron("schedules", "resume", "nightly", "-o", "json").document["paused"] is False
    assert workron("schedules", "rm", "nightly").code == 0
    assert workron("schedules", "show", "nightly").code == 3


def test_a_schedule_fires_at_its_minute(workron: CommandLine) -> None:
    """With a reaper of its own process: within a second of the full minute at most."""
    workron("schedules", "put", "minutely", "--cron", "* * * * *", "--", "true")
    first = workron("schedules", "show", "minutely", "-o", "json").document["next_run_at"]
    patience = Patience(70)
    while not (runs := workron("schedules", "show", "minutely", "-o", "json").document["runs"]):
        assert not patience.is_over
        time.sleep(0.5)
    workron("schedules", "rm", "minutely")
    assert (runs[0]["at"], runs[0]["outcome"]) == (first, "fired")
    assert runs[0]["recorded_at"][:19] == first[:19]
    assert workron("wait", runs[0]["job"]).code == 0


def test_a_workflow_of_a_file_is_scheduled(workron: CommandLine) -> None:
    jobs = [{"name": "a", "command": "true"}, {"name": "b", "command": "true", "depends_on": ["a"]}]
    (workron.cwd / "build.json").write_text(json.dumps({"name": "build", "jobs": jobs}))

    ran = workron("schedules", "put", "build", "--cron", "@daily", "--workflow", "build.json")

    assert ran.code == 0, ran.err
    assert "build (2 jobs)" in ran.out
    workflow = workron("schedules", "run", "build").out.strip()
    assert workron("workflow", "show", workflow).code == 0
    workron("schedules", "rm", "build")


def test_an_error_is_reported_in_one_line(workron: CommandLine) -> None:
    for args, told in {
        ("--cron", "61 * * * *", "--", "true"): "bad minute",
        ("--cron", "@daily", "--tz", "Europe/Belrin", "--", "true"): "did you mean Europe/Berlin?",
        ("--cron", "@daily"): "a command after --, or --workflow FILE",
        ("--cron", "@daily", "--workflow", "x", "--", "true"): "a command after --, or --workflow FILE",
        ("--cron", "@daily", "--overlap", "maybe", "--", "true"): "'allow', 'skip' or 'queue'",
        ("--cron", "@daily", "--idempotency-key", "x", "--", "true"): "not for schedules",
        ("--", "true"): "--cron",
    }.items():
        ran = workron("schedules", "put", "wrong", *args)
        assert (ran.code, ran.out) == (2, ""), args
        assert told in ran.err, args


@pytest.mark.parametrize("name", [".", "..", "a/b", ""])
def test_a_schedule_that_would_be_another_path_is_refused(scripted: CommandLine, name: str) -> None:
    ran = scripted("schedules", "put", name, "--cron", "@daily", "--", "true")
    assert (ran.code, ran.out) == (2, "")
    assert "the name must be 1 to 64 letters" in ran.err
