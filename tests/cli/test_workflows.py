"""`workron workflow` against a real stack."""

import json
import sys

import pytest

from tests.command_line import CommandLine

YAML = """\
name: nightly
jobs:
  - name: build
    command: echo built > product
  - name: test
    argv: [cat, product]
    depends_on: [build]
  - name: complain
    command: echo it failed
    depends_on:
      - {job: test, when: failed}
"""
TOML = """\
name = "nightly"
[[jobs]]
name = "build"
command = "echo built > product"
[[jobs]]
name = "test"
argv = ["cat", "product"]
depends_on = ["build"]
[[jobs]]
name = "complain"
command = "echo it failed"
depends_on = [{job = "test", when = "failed"}]
"""
JSON = json.dumps(
    {
        "name": "nightly",
        "jobs": [
            {"name": "build", "command": "echo built > product"},
            {"name": "test", "argv": ["cat", "product"], "depends_on": ["build"]},
            {"name": "complain", "command": "echo it failed", "depends_on": [{"job": "test", "when": "failed"}]},
        ],
    }
)


@pytest.mark.parametrize(("suffix", "text"), [("yaml", YAML), ("toml", TOML), ("json", JSON)])
def test_a_file_in_each_format_becomes_the_same_workflow(workron: CommandLine, suffix: str, text: str) -> None:
    (workron.cwd / f"flow.{suffix}").write_text(text)

    ran = workron("workflow", "submit", f"flow.{suffix}", "--wait", "-o", "json")

    workflow = ran.document
    assert (ran.code, workflow["status"], workflow["name"], workflow["size"]) == (0, "done", "nightly", 3)
    assert [(job["name"], job["status"]) for job in workflow["jobs"]] == [
        ("build", "done"),
        ("test", "done"),
        ("complain", "skipped"),
    ]
    assert workron("logs", workflow["jobs"][1]["id"]).out == "built\n"


def test_submit_prints_the_id_of_the_workflow_alone(workron: CommandLine) -> None:
    ran = workron("workflow", "submit", "-", given='{"jobs": [{"name": "a", "command": "true"}]}')

    shown = workron("workflow", "show", ran.out.strip())

    assert (ran.code, ran.err, shown.code) == (0, "", 0)
    assert shown.out.startswith(ran.out.strip())


def test_stdin_may_hold_yaml(workron: CommandLine) -> None:
    ran = workron("workflow", "submit", "-", "--wait", given=YAML)

    assert ran.code == 0
    assert "3 of 3 jobs ended" in ran.err


def test_a_workflow_that_fails_gives_exit_code_1_and_a_table_of_what_happened(workron: CommandLine) -> None:
    flow = "jobs: [{name: bad, command: exit 9, max_attempts: 1}, {name: then, command: x, depends_on: [bad]}]"

    ran = workron("workflow", "submit", "-", "--wait", given=flow)

    assert ran.code == 1
    rows = [line.split() for line in ran.out.splitlines()[-2:]]
    assert rows[0][:4] == ["bad", "failed", "exit", "9"]
    assert rows[1][:2] == ["then", "skipped"]


def test_the_jobs_of_a_file_run_in_the_callers_directory_unless_they_name_one(workron: CommandLine) -> None:
    (workron.cwd / "sub").mkdir()
    flow = json.dumps(
        {
            "jobs": [
                {"name": "here", "command": "pwd"},
                {"name": "below", "command": "pwd", "cwd": "sub"},
                {"name": "away", "command": "pwd", "cwd": "/"},
            ]
        }
    )

    jobs = workron("workflow", "submit", "-", "-o", "json", given=flow).document["jobs"]

    assert [job["cwd"] for job in jobs] == [str(workron.cwd), str(workron.cwd / "sub"), "/"]


def test_a_cycle_is_refused_and_named(workron: CommandLine) -> None:
    flow = "jobs:\n- {name: a, command: x, depends_on: [b]}\n- {name: b, command: x, depends_on: [a]}\n"

    ran = workron("workflow", "submit", "-", given=flow)

    assert (ran.code, ran.out) == (2, "")
    assert "a → b → a" in ran.err


def test_a_refusal_of_the_api_is_reported_with_its_place_in_the_file(workron: CommandLine) -> None:
    ran = workron("workflow", "submit", "-", given="jobs:\n- {name: a, command: x}\n- {name: b, command: true}\n")

    assert (ran.code, ran.out) == (2, "")
    assert "jobs[1].command" in ran.err


def test_a_wrong_file_is_reported_in_one_line(workron: CommandLine) -> None:
    (workron.cwd / "flow.yaml").write_text("jobs: [\n")
    (workron.cwd / "flow.txt").write_text("jobs: []\n")
    (workron.cwd / "flow.json").write_bytes(b'{"jobs": "\xff"}')

    for name in ("flow.yaml", "flow.txt", "flow.json", "missing.yaml", "."):
        ran = workron("workflow", "submit", name)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert name in ran.err


def test_an_unknown_workflow_is_not_found(workron: CommandLine) -> None:
    assert workron("workflow", "show", "0000000000000000000000").code == 3


def test_a_job_adds_jobs_to_its_own_workflow(workron: CommandLine) -> None:
    add = f"{sys.executable} -m workron workflow add - --idempotency-key $WORKRON_JOB_ID"
    more = "jobs: [{name: more, command: echo more, depends_on: [plan]}]"
    jobs = [{"name": "plan", "command": f"echo '{more}' | {add}"}, {"name": "last", "command": "true", "final": True}]
    (workron.cwd / "flow.json").write_text(json.dumps({"jobs": jobs}))

    ran = workron("workflow", "submit", "flow.json", "--wait", "-o", "json")

    assert ran.code == 0, ran.document
    found = {job["name"]: job for job in ran.document["jobs"]}
    assert [found[name]["status"] for name in ("plan", "more", "last")] == ["done"] * 3
    assert found["last"]["started_at"] >= found["more"]["finished_at"]
    assert workron("logs", found["plan"]["id"]).out == found["more"]["id"] + "\n"


def test_a_workflow_is_cancelled_and_says_so(workron: CommandLine) -> None:
    (workron.cwd / "flow.json").write_text(json.dumps({"jobs": [{"command": "true", "delay": 600}]}))
    workflow = workron("workflow", "submit", "flow.json").out.strip()

    ran = workron("workflow", "cancel", workflow)

    assert (ran.code, "it was cancelled" in ran.out) == (0, True)
    (workron.cwd / "more.json").write_text(json.dumps({"jobs": [{"command": "true"}]}))
    late = workron("workflow", "add", "more.json", "--to", workflow)
    assert (late.code != 0, "accepts no more jobs" in late.err) == (True, True)


def test_a_cancel_takes_along_what_depends_on_the_job(workron: CommandLine) -> None:
    first = workron("submit", "--delay", "1h", "true").out.strip()
    second = workron("submit", "--after", f"{first}:finished", "true").out.strip()
    assert workron("cancel", "--cascade", first).code == 0
    assert workron("show", second, "-o", "json").document["status"] == "cancelled"
