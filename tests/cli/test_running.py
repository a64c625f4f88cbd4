"""`workron run` and `workron submit` against a real stack."""

import re
import signal
import time

from tests.command_line import CommandLine

ID = re.compile(r"[0-9A-Za-z]{22}")


def test_run_streams_the_output_and_leaves_with_the_commands_exit_code(workron: CommandLine) -> None:
    ran = workron("run", "--", "sh", "-c", "echo out; echo err >&2; exit 7")

    assert (ran.code, ran.out, ran.err) == (7, "out\nerr\n", "")


def test_run_of_a_command_that_succeeds_is_silent_but_for_its_output(workron: CommandLine) -> None:
    ran = workron("run", "printf '\\000\\377' | od -An -tx1")

    assert (ran.code, ran.out.strip(), ran.err) == (0, "00 ff", "")


def test_run_of_a_command_that_a_signal_ends_leaves_with_128_and_its_number(workron: CommandLine) -> None:
    ran = workron("run", "kill -9 $$")

    assert ran.code == 128 + signal.SIGKILL
    assert "signal 9" in ran.err


def test_run_of_a_job_without_an_exit_code_leaves_with_125(workron: CommandLine) -> None:
    failed = workron("submit", "--wait", "--max-attempts", "1", "false").out.strip()

    ran = workron("run", "--after", failed, "true")

    assert (ran.code, ran.out) == (125, "")
    assert failed in ran.err


def test_run_tries_once_by_default(workron: CommandLine) -> None:
    assert workron("run", "echo tried; exit 3").out == "tried\n"
    assert workron("run", "--max-attempts", "2", "echo tried; exit 3").out == "tried\ntried\n"


def test_run_passes_on_output_while_the_command_runs(workron: CommandLine) -> None:
    process = workron.start("run", "echo first; until test -e go; do sleep 0.05; done; echo second")
    assert process.stdout is not None

    assert process.stdout.readline() == b"first\n"
    (workron.cwd / "go").touch()

    assert process.communicate(timeout=30) == (b"second\n", b"")
    assert process.returncode == 0


def test_ctrl_c_leaves_the_job_running_and_says_how_to_go_on(workron: CommandLine) -> None:
    process = workron.start("run", "echo started; until test -e go; do sleep 0.05; done")
    assert process.stdout is not None
    process.stdout.readline()

    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    (workron.cwd / "go").touch()

    job_id = ID.search(err.decode())
    assert job_id is not None, err
    assert process.returncode == 130
    assert f"workron logs -f {job_id[0]}" in err.decode()
    assert workron("wait", job_id[0]).code == 0


def test_one_argument_goes_to_the_shell_and_several_are_a_program_with_its_arguments(workron: CommandLine) -> None:
    assert workron("run", "echo a  b").out == "a b\n"
    assert workron("run", "echo", "a  b").out == "a  b\n"
    assert workron("run", "printf", "%s", "$HOME").out == "$HOME"


def test_options_of_the_command_need_no_double_dash(workron: CommandLine) -> None:
    assert workron("run", "echo", "--name", "x", "-o").out == "--name x -o\n"


def test_submit_prints_the_id_alone(workron: CommandLine) -> None:
    submitted = workron("submit", "--", "true")

    assert ID.fullmatch(submitted.out.rstrip("\n"))
    assert (submitted.code, submitted.err) == (0, "")


def test_commands_run_in_the_callers_directory(workron: CommandLine) -> None:
    elsewhere = workron.cwd / "elsewhere"
    elsewhere.mkdir()

    assert workron("run", "pwd").out == f"{workron.cwd}\n"
    assert workron("run", "--cwd", "elsewhere", "pwd").out == f"{elsewhere}\n"
    assert workron("run", "--no-cwd", "pwd").out != f"{workron.cwd}\n"


def test_every_option_of_submit_arrives(workron: CommandLine) -> None:
    first = workron("submit", "true").out.strip()
    options = [
        *("--name", "größe", "--queue", "nobody-serves-this", "--priority", "9", "--max-attempts", "7"),
        *("--timeout", "90s", "--env", "A=1", "--env", "HERE", "--after", first, "--cwd", "/"),
    ]

    job = workron("submit", *options, "-o", "json", "--", "echo", "x", HERE="taken from here").document

    expected = {
        "name": "größe",
        "queue": "nobody-serves-this",
        "priority": 9,
        "max_attempts": 7,
        "timeout": 90.0,
        "env": {"A": "1", "HERE": "taken from here"},
        "depends_on": [first],
        "cwd": "/",
        "argv": ["echo", "x"],
        "command": None,
    }
    assert {name: job[name] for name in expected} == expected


def test_a_job_can_wait_for_its_time(workron: CommandLine) -> None:
    delayed = workron("submit", "--delay", "1h", "-o", "json", "true").document
    local = workron("submit", "--run-at", "2100-01-31T18:00", "-o", "json", "true", TZ="Asia/Tokyo").document
    offset = workron("submit", "--run-at", "2100-01-31T18:00:00.5-05:00", "-o", "json", "true").document

    assert delayed["status"] == local["status"] == "scheduled"
    assert local["run_at"] == "2100-01-31T09:00:00.000Z"
    assert offset["run_at"] == "2100-01-31T23:00:00.500Z"


def test_a_job_can_wait_for_a_failure(workron: CommandLine) -> None:
    failed = workron("submit", "--max-attempts", "1", "false").out.strip()

    ran = workron("run", "--after", f"{failed}:failed", "echo cleaned up")

    assert (ran.code, ran.out) == (0, "cleaned up\n")


def test_submit_wait_tells_by_its_exit_code_how_the_job_ended(workron: CommandLine) -> None:
    good = workron("submit", "--wait", "true")
    bad = workron("submit", "--wait", "--max-attempts", "1", "-o", "json", "exit 3")

    assert (good.code, ID.fullmatch(good.out.strip()) is not None) == (0, True)
    assert (bad.code, bad.document["status"], bad.document["exit_code"]) == (1, "failed", 3)


def test_submitting_again_with_the_same_key_gives_the_same_job(workron: CommandLine) -> None:
    key = f"nightly-{time.time_ns()}"
    first = workron("submit", "--idempotency-key", key, "true")
    again = workron("submit", "--idempotency-key", key, "true")
    other = workron("submit", "--idempotency-key", key, "false")

    assert first.out == again.out
    assert (other.code, other.out) == (4, "")
