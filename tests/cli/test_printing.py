"""What is printed: formats, terminals, and text from elsewhere that must not steer them."""

import json
import re
import shlex
import subprocess
import sys

import pytest

from api.schemas import Job
from tests.command_line import LAUNCH, Answer, CommandLine, ScriptedApi, job_document, job_list, problem
from workron.cli.render import STATUSES
from workron.cli.text import TerminalFilter, printable
from workron.models import Status

EVIL = "a\x1b[2J\x1b]0;owned\x07b\nc\u202ed\x9b2Je\u2028f"
ESCAPED = "a\\x1b[2J\\x1b]0;owned\\x07b\\nc\\u202ed\\x9b2Je\\u2028f"
SGR = re.compile(r"\x1b\[[0-9;]*m")


def widths(shown: str) -> list[int]:
    return [len(SGR.sub("", line)) for line in shown.splitlines()]


def test_names_and_commands_cannot_steer_the_terminal(scripted: CommandLine, api: ScriptedApi) -> None:
    job = job_document(name=EVIL, command=EVIL, error=EVIL, worker=EVIL, env={EVIL: EVIL}, status="failed")

    for command in (["ls"], ["show", job["id"]]):
        api.script(job_list(job) if command == ["ls"] else Answer(job))
        for ran in (scripted(*command), scripted.on_terminal(*command, columns=300)):
            text = SGR.sub("", ran.out)
            assert ESCAPED in text or command == ["show", job["id"]]
            assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202e]", text)


def test_json_holds_the_text_as_it_is_but_cannot_steer_the_terminal(scripted: CommandLine, api: ScriptedApi) -> None:
    api.script(Answer(job_document(name=EVIL + "größe \ud800", command="漢字")))

    ran = scripted("show", job_document()["id"], "-o", "json")

    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202e]", ran.out)
    assert "größe" in ran.out
    assert (ran.document["name"], ran.document["command"]) == (EVIL + "größe \ud800", "漢字")


def test_an_error_from_the_api_is_one_line_without_escapes(scripted: CommandLine, api: ScriptedApi) -> None:
    api.script(problem(422, "validation", EVIL))

    ran = scripted("submit", "true")

    assert (ran.code, ran.err) == (2, f"workron: {ESCAPED}\n")


def test_json_is_a_list_and_jsonl_a_document_a_line(scripted: CommandLine, api: ScriptedApi) -> None:
    api.script(job_list(job_document(), job_document()))

    as_json, as_lines = scripted("ls", "-o", "json"), scripted("ls", "-o", "jsonl")

    assert as_json.document == as_lines.documents == [job_document(), job_document()]


@pytest.mark.parametrize("columns", [36, 60, 80, 120])
def test_tables_fit_the_terminal(scripted: CommandLine, api: ScriptedApi, columns: int) -> None:
    ended = {"started_at": "2026-03-01T09:30:00.250Z", "finished_at": "2026-03-01T09:33:20.250Z"}
    api.script(
        job_list(
            job_document(name="n" * 40, command="c" * 200, status="failed", exit_code=3, reason="exit_code", **ended),
            job_document(name="漢字" * 20, command="漢字" * 50, queue="q" * 64),
        )
    )

    ran = scripted.on_terminal("ls", columns=columns)

    assert ran.out.count("\n") == 3
    assert max(widths(ran.out)) <= columns
    for line in SGR.sub("", ran.out).splitlines()[1:]:
        assert line.startswith(job_document()["id"])
        assert line.split()[1] in {"failed", "pending"}


def test_nothing_is_cut_off_in_a_pipe(scripted: CommandLine, api: ScriptedApi) -> None:
    api.script(job_list(job_document(name="n" * 300, command="c" * 3000)))

    ran = scripted("ls", COLUMNS="40")

    assert "n" * 300 in ran.out
    assert "c" * 3000 in ran.out
    assert not any(line.endswith(" ") for line in ran.out.splitlines())


def test_colours_are_for_terminals_only(scripted: CommandLine, api: ScriptedApi) -> None:
    api.script(job_list(job_document(status="failed")))

    assert SGR.search(scripted.on_terminal("ls").out)
    assert not SGR.search(scripted.on_terminal("ls", NO_COLOR="1").out)
    assert not SGR.search(scripted.on_terminal("ls", TERM="dumb").out)
    assert not SGR.search(scripted("ls", FORCE_COLOR="1").out)


def test_the_command_line_knows_every_status_without_the_models() -> None:
    assert tuple(Status) == STATUSES


def test_output_may_colour_a_terminal_but_not_steer_it(scripted: CommandLine, api: ScriptedApi) -> None:
    api.script(Answer(raw=b"\x1b[31mred\x1b[0m \x1b[2J\x1b]52;c;aGk=\x07plain\n"))
    job_id = job_document()["id"]

    assert scripted.on_terminal("logs", job_id).out == "\x1b[31mred\x1b[0m plain\n\x1b[0m"
    assert scripted("logs", job_id).out == "\x1b[31mred\x1b[0m \x1b[2J\x1b]52;c;aGk=\x07plain\n"


def test_the_job_of_these_tests_has_all_that_the_api_says_of_one() -> None:
    assert job_document().keys() == Job.model_fields.keys()


def test_a_stdout_that_is_not_utf_8_gets_valid_json(scripted: CommandLine, api: ScriptedApi) -> None:
    api.script(Answer(job_document(name="größe")))

    ran = scripted("show", job_document()["id"], "-o", "json", PYTHONIOENCODING="ascii")
    table = scripted("show", job_document()["id"], PYTHONIOENCODING="ascii")

    assert ran.document["name"] == "größe"
    assert (table.code, "gr\\xf6\\xdfe" in table.out) == (0, True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain größe 漢字 👩‍🚀", "plain größe 漢字 👩‍🚀"),
        ("tab\tnewline\nreturn\r", "tab\\tnewline\\nreturn\\r"),
        ("\x00\x1b\x7f\x9b", "\\x00\\x1b\\x7f\\x9b"),
        ("\u202e\u2066\ufeff\ud800", "\\u202e\\u2066\\ufeff\\ud800"),
        ("\U000e0001", "\\U000e0001"),
    ],
)
def test_what_cannot_be_seen_is_written_as_an_escape(text: str, expected: str) -> None:
    assert printable(text) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"plain\r\n\ttext \xe6\xbc\xa2", b"plain\r\n\ttext \xe6\xbc\xa2"),
        (b"\x1b[1;31mred\x1b[m \x1b[K", b"\x1b[1;31mred\x1b[m \x1b[K"),
        (b"a\x1b[2Jb\x1b[10;10Hc\x1b[?1049hd", b"abcd"),
        (b"a\x1b]0;title\x07b\x1b]52;c;x\x1b\\c", b"abc"),
        (b"a\x1bPdcs\x1b\\b\x1bcc\x1b(0d", b"abcd"),
        (b"a\xc2\x9b2Jb\x07\x00\x0ec", b"a2Jbc"),
        (b"\x1b\x1b[31mx", b"\x1b[31mx"),
    ],
)
def test_the_filter_gives_the_same_however_the_stream_is_cut(data: bytes, expected: bytes) -> None:
    assert TerminalFilter().feed(data) == expected
    for cut in range(len(data)):
        filtered = TerminalFilter()
        assert filtered.feed(data[:cut]) + filtered.feed(data[cut:]) == expected


def test_the_filter_holds_back_no_more_than_a_sequence() -> None:
    filtered = TerminalFilter()

    shown = filtered.feed(b"\x1b]0;" + b"x" * 100_000)
    later = filtered.feed(b"y")

    assert (shown, later) == (b"", b"y")


def test_a_listing_streams_as_json_lines(scripted: CommandLine, api: ScriptedApi) -> None:
    api.script(job_list(job_document(), next_cursor="more"), job_list(job_document()))

    assert [json.loads(line)["id"] for line in scripted("ls", "--all", "-o", "jsonl").out.splitlines()] == [
        job_document()["id"]
    ] * 2


def test_health_reads_well(scripted: CommandLine, api: ScriptedApi) -> None:
    server = {
        "product": "valkey",
        "version": "9.1.2",
        "appendonly": True,
        "appendfsync": "always",
        "maxmemory_policy": "noeviction",
        "used_memory": 3 * 2**20,
        "maxmemory": 0,
    }
    report = {
        "status": "degraded",
        "warnings": ["no reaper has ever run"],
        "instance": "vm-1",
        "version": "0.1.0",
        "uptime": 200.0,
        "server": server,
        "reaper": {"last_pass_age": None},
        "due": 2,
        "running": 1,
    }
    api.script(Answer(report))

    ran = scripted("health")

    assert [line.split(maxsplit=1) for line in ran.out.splitlines()] == [
        ["degraded"],
        ["warning", "no reaper has ever run"],
        ["instance", "vm-1"],
        ["api", "workron 0.1.0, up 3m20s"],
        ["redis", "valkey 9.1.2"],
        ["durability", "AOF, fsync always"],
        ["eviction", "noeviction"],
        ["memory", "3.0 MiB, no limit"],
        ["reaper", "never ran"],
        ["jobs", "1 running, 2 scheduled"],
    ]


def test_a_full_disk_is_reported_in_one_line(scripted: CommandLine, api: ScriptedApi) -> None:
    api.script(job_list(job_document()))

    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*LAUNCH, "ls"], stdout=full, stderr=subprocess.PIPE, env=scripted.env, cwd=scripted.cwd, timeout=60
        )

    assert (done.returncode, done.stderr) == (9, b"workron: can't write the output: no space left\n")


@pytest.mark.parametrize(
    ("words", "redirection", "code", "err"),
    [
        ("submit --each -", "<&-", 0, ""),
        ("wait -", "<&-", 2, "workron: there are no ids on stdin\n"),
        ("wait -", "<&- 2>&-", 2, ""),
        ("show nope", "2>&-", 3, ""),
    ],
)
def test_a_closed_standard_stream_is_an_empty_one(
    scripted: CommandLine, api: ScriptedApi, words: str, redirection: str, code: int, err: str
) -> None:
    script = f"exec {shlex.join(LAUNCH)} {words} {redirection}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, env=scripted.env, cwd=scripted.cwd, timeout=60)

    assert (done.returncode, done.stdout.decode(), done.stderr.decode()) == (code, "", err)


def test_a_notice_comes_after_the_output_before_it_in_a_shared_file() -> None:
    script = "from workron.cli.exits import notice; [print('x') for _ in range(9000)]; notice('that was all')"

    shared = subprocess.check_output([sys.executable, "-c", script], stderr=subprocess.STDOUT, env={}, timeout=60)

    assert shared.decode() == "x\n" * 9000 + "workron: that was all\n"
