"""`submit --each`: a job for each line, in bulk requests."""

import json
import signal
import threading
from pathlib import Path

import pytest

from tests.command_line import TIMEOUT_S, Answer, Call, CommandLine, ScriptedApi, job_document, problem


@pytest.fixture
def bulk(api: ScriptedApi) -> ScriptedApi:
    """An API that stores whatever it gets; the id of a job is the last word of its command."""

    def store(call: Call) -> Answer:
        jobs = [job_document(**job, id=job["command"].split()[-1]) for job in call.body["jobs"]]
        return Answer({"data": jobs, "next_cursor": None}, 201)

    api.answer = store
    return api


def commands(api: ScriptedApi) -> list[list[str]]:
    return [[job["command"] for job in call.body["jobs"]] for call in api.calls]


def test_many_lines_are_few_requests_in_their_order(scripted: CommandLine, bulk: ScriptedApi) -> None:
    lines = [f"./import {number}" for number in range(2500)]

    ran = scripted("submit", "--each", "-", given="\n".join(lines))

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.split() == [str(number) for number in range(2500)]
    assert [len(some) for some in commands(bulk)] == [1000, 1000, 500]
    assert [command for some in commands(bulk) for command in some] == lines
    assert {call.path for call in bulk.calls} == {"/jobs/bulk"}


def test_a_form_feed_or_another_separator_does_not_end_a_line(scripted: CommandLine, bulk: ScriptedApi) -> None:
    scripted("submit", "--each", "-", given="echo a\x0cb\u2028c\x85d\re\r\necho f\n")

    assert commands(bulk) == [["echo a\x0cb\u2028c\x85d\re", "echo f"]]


def test_long_lines_are_more_requests_none_of_which_is_too_large(scripted: CommandLine, bulk: ScriptedApi) -> None:
    lines = [f"{'x' * 900_000} {number}" for number in range(6)]

    ran = scripted("submit", "--each", "-", given="\n".join(lines))

    assert ran.out.split() == [str(number) for number in range(6)]
    assert [len(some) for some in commands(bulk)] == [4, 2]


def test_large_fields_of_every_job_are_more_requests(scripted: CommandLine, bulk: ScriptedApi) -> None:
    lines = "\n".join(f"x {number}" for number in range(60))

    scripted("submit", "--each", "-", "--env", f"LARGE={'x' * 99_000}", given=lines)

    assert [len(some) for some in commands(bulk)] == [40, 20]


def test_lines_of_a_file_are_commands_of_the_shell_and_empty_ones_are_none(
    scripted: CommandLine, bulk: ScriptedApi, tmp_path: Path
) -> None:
    file = tmp_path / "commands"
    file.write_text("echo 'a  b' | tee 1\r\n\n   \n  ./größe 2")

    assert scripted("submit", "--each", str(file)).out == "1\n2\n"

    assert commands(bulk) == [["echo 'a  b' | tee 1", "  ./größe 2"]]


def test_a_byte_order_mark_is_no_part_of_the_first_command(
    scripted: CommandLine, bulk: ScriptedApi, tmp_path: Path
) -> None:
    file = tmp_path / "commands"
    file.write_text("./one 1\n./two 2\n", "utf-8-sig")

    scripted("submit", "--each", str(file))
    scripted("submit", "--each", "-", given=file.read_bytes())

    assert commands(bulk) == [["./one 1", "./two 2"]] * 2


@pytest.mark.parametrize("words", [(), ("-o", "json"), ("-o", "jsonl"), ("-o", "json", "--wait")])
def test_what_was_stored_before_a_request_that_fails_is_printed(
    scripted: CommandLine, bulk: ScriptedApi, words: tuple[str, ...]
) -> None:
    store = bulk.answer
    bulk.answer = lambda call: store(call) if len(bulk.calls) == 1 else problem(422, "validation", "no more")

    ran = scripted("submit", "--each", "-", *words, given="\n".join(f"x {number}" for number in range(1001)))

    assert (ran.code, "no more" in ran.err) == (2, True)
    assert ids(ran.out, *words) == [str(number) for number in range(1000)]


@pytest.mark.parametrize("words", [("-o", "json"), ("-o", "jsonl", "--wait")])
def test_what_was_stored_before_an_interrupt_is_printed(
    scripted: CommandLine, bulk: ScriptedApi, tmp_path: Path, words: tuple[str, ...]
) -> None:
    store, asked_again = bulk.answer, threading.Event()

    def stall(call: Call) -> Answer:
        if len(bulk.calls) == 1:
            return store(call)
        asked_again.set()
        return Answer(stalls=True)

    bulk.answer = stall
    file = tmp_path / "commands"
    file.write_text("\n".join(f"x {number}" for number in range(1001)))

    process = scripted.start("submit", "--each", str(file), *words)
    assert asked_again.wait(TIMEOUT_S)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=TIMEOUT_S)

    assert process.returncode == 130
    assert ids(out.decode(), *words) == [str(number) for number in range(1000)]


def ids(out: str, *words: str) -> list[str]:
    """Return the ids in the output of a command with these options."""
    if "json" in words:
        return [job["id"] for job in json.loads(out)]
    return [json.loads(line)["id"] if "jsonl" in words else line for line in out.splitlines()]


def test_a_first_request_that_fails_prints_nothing(scripted: CommandLine, bulk: ScriptedApi) -> None:
    bulk.answer = lambda _: problem(422, "validation", "none at all")

    ran = scripted("submit", "--each", "-", "-o", "json", given="x 1\n")

    assert (ran.code, ran.out) == (2, "")


def test_the_options_of_every_job_apply(scripted: CommandLine, bulk: ScriptedApi) -> None:
    ran = scripted("submit", "--queue", "reports", "--tag", "a", "--each", "-", "-o", "jsonl", given="x 1\nx 2\n")

    assert [(job["queue"], job["tags"]) for job in ran.documents] == [("reports", ["a"])] * 2


def test_the_same_lines_with_a_key_are_the_same_requests(scripted: CommandLine, bulk: ScriptedApi) -> None:
    lines = "\n".join(f"x {number}" for number in range(1001))
    for words in (("--idempotency-key", "nightly"), ("--idempotency-key", "nightly"), ()):
        assert scripted("submit", *words, "--each", "-", given=lines).code == 0

    keys = [call.headers["idempotency-key"] for call in bulk.calls]
    assert keys[:4] == ["nightly-1", "nightly-2"] * 2
    assert len(set(keys)) == 4


def test_no_lines_are_no_request(scripted: CommandLine, bulk: ScriptedApi) -> None:
    ran = scripted("submit", "--each", "-", given="\n")

    assert (ran.code, ran.out, bulk.calls) == (0, "", [])


def test_each_and_a_command_exclude_each_other_and_a_file_must_be_readable(
    scripted: CommandLine, bulk: ScriptedApi, tmp_path: Path
) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\n")
    for words, expected in {
        ("--each", "-", "true"): "takes the place of a command",
        ("--each", str(tmp_path / "none")): "no such file",
        ("--each", str(tmp_path / "bytes")): "not UTF-8 text",
    }.items():
        ran = scripted("submit", *words)
        assert (ran.code, ran.out) == (2, ""), words
        assert expected in ran.err, words
    assert bulk.calls == []


def test_each_line_runs_and_wait_says_whether_all_are_done(workron: CommandLine) -> None:
    ran = workron("submit", "--max-attempts", "1", "--wait", "-o", "json", "--each", "-", given="exit 0\nexit 3\n")

    assert ran.code == 1
    assert [(job["status"], job["exit_code"]) for job in ran.document] == [("done", 0), ("failed", 3)]
