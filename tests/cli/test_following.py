"""`workron run` and `logs -f` print every byte that is kept, once and in order, wherever the stream breaks off."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.command_line import Answer, Call, CommandLine, ScriptedApi, job_document
from tests.followed import cut, end, stream, text
from workron.cli.stream import OutputSink, follow
from workron.client import Client

RUNNING = job_document(status="running", attempts=1)
DONE = job_document(status="done", attempts=1, exit_code=0)
JOB = DONE["id"]


def follows(api: ScriptedApi, streams: dict[str | None, list[Answer]]) -> None:
    """Answer the streams from each position in turn, the last one for ever; the job ends once it was asked for."""
    jobs = [Answer(RUNNING), Answer(DONE)]

    def answer(call: Call) -> Answer:
        left = streams[call.query.get("position")] if call.path.endswith("/output") else jobs
        return left.pop(0) if len(left) > 1 else left[0]

    api.answer = answer


def test_output_behind_a_stream_that_breaks_off_is_not_lost_when_the_job_has_ended(
    scripted: CommandLine, api: ScriptedApi
) -> None:
    first, rest = stream(text(7, 0, b"first\n"), breaks=True), stream(text(7, 6, b"RESULT\n"), end(7, 13))
    follows(api, {None: [first], "7:6": [rest]})

    ran = scripted("logs", "-f", JOB)

    assert (ran.code, ran.out) == (0, "first\nRESULT\n")


def test_a_stream_that_closes_without_an_end_is_opened_again(scripted: CommandLine, api: ScriptedApi) -> None:
    """[So does an API that is stopped: the job had ended by then, and what it said last was not read.]"""
    first, rest = stream(text(7, 0, b"first\n")), stream(text(7, 6, b"RESULT\n"), end(7, 13))
    follows(api, {None: [stream(), first], "7:6": [stream(), rest]})

    assert scripted("logs", "-f", JOB).out == "first\nRESULT\n"


@contextmanager
def impatient(api: ScriptedApi, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client that takes a stream for dead after a moment of silence."""
    monkeypatch.setattr("workron.client.transport._SILENCE_S", 0.3)
    with Client(api.url, "0123456789abcdef") as client:
        yield client


def test_a_command_that_is_quiet_for_longer_than_a_stream_is_waited_for_loses_nothing(
    api: ScriptedApi, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """[`sleep 60.4; echo RESULT` printed nothing, and exited with 0.]"""
    follows(api, {None: [stream(stalls=True), stream(text(7, 0, b"RESULT\n"), end(7, 7))]})

    with impatient(api, monkeypatch) as client, OutputSink() as sink:
        assert follow(client, JOB, sink)["status"] == "done"

    assert capfdbinary.readouterr().out == b"RESULT\n"


def test_the_line_about_cut_output_is_not_counted_as_output(
    api: ScriptedApi, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """[After 1 MB and a minute of silence the last 128 KiB came a second time, and again with each further minute.]"""
    written = [text(7, 0, b"head"), cut(7, 4, 1_000_000), text(7, 1_000_000, b"tail")]
    rest = stream(text(7, 1_000_004, b"."), end(7, 1_000_005))
    follows(api, {None: [stream(*written, stalls=True)], "7:1000004": [stream(stalls=True), rest]})

    with impatient(api, monkeypatch) as client, OutputSink() as sink:
        follow(client, JOB, sink)

    assert capfdbinary.readouterr().out == "head\n… 999,996 bytes cut …\ntail.".encode()


def test_the_output_of_a_second_attempt_follows_on_the_first_once(
    api: ScriptedApi, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """[`A B`, then a minute of silence, then `C`: that printed `A B B C`.]"""
    first, rest = stream(text(7, 0, b"A\n"), text(9, 0, b"B\n"), stalls=True), stream(text(9, 2, b"C\n"), end(9, 4))
    follows(api, {None: [first], "9:2": [stream(stalls=True), rest]})

    with impatient(api, monkeypatch) as client, OutputSink() as sink:
        follow(client, JOB, sink)

    assert capfdbinary.readouterr().out == b"A\nB\nC\n"


def test_an_event_that_came_by_half_comes_whole_with_the_next_stream(scripted: CommandLine, api: ScriptedApi) -> None:
    half = text(7, 6, b"second\n")[:-5]
    first, rest = stream(text(7, 0, b"first\n"), half, breaks=True), stream(text(7, 6, b"second\n"), end(7, 13))
    follows(api, {None: [first], "7:6": [rest]})

    assert scripted("logs", "-f", JOB).out == "first\nsecond\n"


def test_run_prints_what_was_written_before_it_began_to_follow(scripted: CommandLine, api: ScriptedApi) -> None:
    follows(api, {"0:0": [stream(text(7, 0, b"A"), text(9, 0, b"B"), end(9, 1))]})

    ran = scripted("run", "true")

    assert (ran.code, ran.out) == (0, "AB")


def test_a_job_that_was_retried_in_the_moment_of_its_end_is_followed_further(
    scripted: CommandLine, api: ScriptedApi
) -> None:
    streams = [stream(text(7, 0, b"A"), end(7, 1)), stream(text(9, 0, b"B"), end(9, 1))]
    jobs = [RUNNING, RUNNING, DONE]
    api.answer = lambda call: streams.pop(0) if call.path.endswith("/output") else Answer(jobs.pop(0))

    assert scripted("logs", "-f", JOB).out == "AB"


@pytest.mark.parametrize(
    "answer",
    [
        Answer(raw=b"plain", headers={"content-type": "text/plain"}),
        stream(b"id: 1:1\nevent: output\ndata: {}\n\n"),
        stream(b"id: 1:1\nevent: cut\ndata: \xff\n\n"),
    ],
)
def test_an_answer_that_is_no_output_stream_is_reported_in_one_line(
    scripted: CommandLine, api: ScriptedApi, answer: Answer
) -> None:
    api.answer = lambda call: answer if call.path.endswith("/output") else Answer(RUNNING)

    ran = scripted("logs", "-f", JOB)

    assert (ran.code, ran.out, ran.err.count("\n")) == (9, "", 1)
