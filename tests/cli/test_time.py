"""Delays, deadlines, expiries and cancels at the command line, against a real stack."""

import time

import pytest

from tests.command_line import Answer, CommandLine, ScriptedApi, job_document


def submit(workron: CommandLine, *args: str) -> str:
    ran = workron("submit", *args)
    assert ran.code == 0, ran.err
    return ran.out.strip()


def test_a_command_is_stopped_at_its_deadline_and_fails(workron: CommandLine) -> None:
    ran = workron("run", "--deadline", "1s", "trap 'exit 9' TERM; sleep 60 & wait")

    assert ran.code == 9
    job = workron("ls", "-o", "jsonl", "--limit", "1").documents[0]
    assert (job["status"], job["reason"], job["exit_code"]) == ("failed", "expired", 9)


def test_a_job_that_does_not_start_in_time_is_cancelled_and_shown_so(workron: CommandLine) -> None:
    job_id = submit(workron, "--queue", "nobody-serves-it", "--expires", "200ms", "true")

    assert workron("wait", job_id).code == 1
    shown = workron("show", job_id).out
    assert "expired: not started in time" in shown
    assert "start by" in shown


def test_run_at_takes_durations_as_well(workron: CommandLine) -> None:
    job_id = submit(workron, "--run-at", "2h", "--deadline", "2100-01-31T18:00Z", "true")

    job = workron("show", "-o", "json", job_id).document
    assert (job["status"], job["deadline"]) == ("scheduled", "2100-01-31T18:00:00.000Z")
    assert "end by" in workron("show", job_id).out
    workron("cancel", job_id)


@pytest.mark.parametrize("option", ["--run-at", "--deadline", "--expires"])
def test_what_is_no_time_is_named(scripted: CommandLine, option: str) -> None:
    ran = scripted("submit", option, "soon", "true")

    assert ran.code == 2
    assert option in ran.err
    assert "'soon' is not a time" in ran.err


def test_cancel_waits_until_all_commands_have_stopped(workron: CommandLine) -> None:
    slow = "trap 'sleep 0.5; exit 4' TERM; echo ready; sleep 60 & wait"
    job_id = submit(workron, slow)
    while "ready" not in workron("logs", job_id).out:
        time.sleep(0.05)

    ran = workron("cancel", "--wait", "-o", "jsonl", job_id)

    assert ran.code == 0
    assert [(job["status"], job["exit_code"]) for job in ran.documents] == [("cancelled", 4)]


def test_cancel_names_the_run_that_it_saw(scripted: CommandLine, api: ScriptedApi) -> None:
    """A request that is delayed, or sent again, must not hit a run that was started since."""
    api.script(Answer(job_document(run=4)))

    ran = scripted("cancel", "03557DJR2dL0HA8BMGxsib")

    assert ran.code == 0
    assert [(call.method, call.body) for call in api.calls] == [("GET", None), ("POST", {"run": 4})]
