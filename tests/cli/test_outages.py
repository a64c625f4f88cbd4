"""What the command line does when the API is away, slow to come back, or not what it should be."""

from collections.abc import Callable

import pytest

from tests.command_line import Answer, Call, CommandLine, ScriptedApi, job_document, job_list, problem
from tests.ports import free_port

AWAY = problem(503, "store-unavailable", "Redis can't be reached", headers={"retry-after": "1"})


def free_url() -> str:
    return f"http://127.0.0.1:{free_port()}"


def breaking_off(call: Call) -> Answer:
    return Answer(breaks=True)


def in_turn(*answers: Callable[[Call], Answer] | Answer) -> Callable[[Call], Answer]:
    left = list(answers)

    def answer(call: Call) -> Answer:
        now = left.pop(0) if len(left) > 1 else left[0]
        return now(call) if callable(now) else now

    return answer


def test_a_submission_is_repeated_with_the_same_key_until_it_is_answered(
    scripted: CommandLine, api: ScriptedApi
) -> None:
    api.answer = in_turn(breaking_off, AWAY, Answer(job_document(), 201))

    ran = scripted("submit", "true")

    assert (ran.code, ran.out) == (0, f"{job_document()['id']}\n")
    assert len({call.headers["idempotency-key"] for call in api.calls}) == 1
    assert len(api.calls) == 3


def test_two_submissions_have_different_keys(scripted: CommandLine, api: ScriptedApi) -> None:
    api.script(Answer(job_document(), 201))

    scripted("submit", "true")
    scripted("submit", "true")

    first, second = (call.headers["idempotency-key"] for call in api.calls)
    assert first != second


def test_an_outage_is_reported_once_when_it_begins_and_once_when_it_ends(
    scripted: CommandLine, api: ScriptedApi
) -> None:
    api.answer = in_turn(breaking_off, breaking_off, breaking_off, job_list(job_document()))

    ran = scripted("ls")

    assert ran.code == 0
    begin, end = ran.err.splitlines()
    assert api.url in begin
    assert "retrying for 60 s" in begin
    assert end == f"workron: {api.url} is available again"


def test_retry_after_is_respected(scripted: CommandLine, api: ScriptedApi) -> None:
    api.script(AWAY, job_list(job_document()))

    assert scripted("ls").code == 0

    first, second = (call.at for call in api.calls)
    assert second - first >= 1


def test_no_wait_fails_at_once(scripted: CommandLine, api: ScriptedApi) -> None:
    api.script(AWAY)

    busy = scripted("ls", "--no-wait")
    away = scripted("ls", "--no-wait", "--url", free_url())

    assert (busy.code, busy.err) == (5, "workron: Redis can't be reached\n")
    assert len(api.calls) == 1
    assert away.code == 5
    assert "connection refused" in away.err


def test_patience_that_the_api_would_exceed_is_not_tried(scripted: CommandLine, api: ScriptedApi) -> None:
    api.script(problem(503, "store-unavailable", "Redis is away", headers={"retry-after": "3600"}))

    assert scripted("submit", "true").code == 5


def test_an_unknown_host_fails_at_once(scripted: CommandLine) -> None:
    ran = scripted("ls", "--url", "http://no-such-host.invalid:1")

    assert ran.code == 5
    assert ran.err.count("\n") == 1


def test_a_refused_key_has_an_exit_code_of_its_own(scripted: CommandLine, api: ScriptedApi) -> None:
    api.script(problem(401, "unauthorized", "send the API key"))

    wrong = scripted("ls")
    scripted.env.pop("WORKRON_API_KEY")
    missing = scripted("ls")

    assert (wrong.code, missing.code) == (6, 6)
    assert "rejected the key" in wrong.err
    assert "requires a key: set WORKRON_API_KEY" in missing.err
    assert api.calls[0].headers["authorization"] == "Bearer 0123456789abcdef"
    assert "authorization" not in api.calls[1].headers


@pytest.mark.parametrize(
    "answer",
    [
        Answer(raw=b"<html>hello</html>", headers={"content-type": "text/html"}),
        Answer(raw=b"not here", status=404, headers={"content-type": "text/plain"}),
        Answer(raw=b"", status=302, headers={"location": "/elsewhere", "content-type": "text/plain"}),
        problem(500, "internal", "something went wrong in the server"),
    ],
)
def test_an_unexpected_answer_is_reported_in_one_line(scripted: CommandLine, api: ScriptedApi, answer: Answer) -> None:
    api.script(answer)

    ran = scripted("ls")

    assert (ran.code, ran.out, ran.err.count("\n")) == (9, "", 1)


def test_a_proxy_in_the_environment_is_not_asked_for_this_machine(scripted: CommandLine, api: ScriptedApi) -> None:
    api.script(job_list(job_document()))

    assert scripted("ls", "--no-wait", HTTP_PROXY=free_url(), http_proxy=free_url()).code == 0


def test_a_retry_whose_answer_was_lost_is_no_conflict(scripted: CommandLine, api: ScriptedApi) -> None:
    failed, again = job_document(status="failed"), job_document(status="pending", run=2)
    conflict = problem(409, "conflict", "run 1 is over")
    api.answer = in_turn(Answer(failed), breaking_off, conflict, Answer(again))

    ran = scripted("retry", failed["id"])

    assert (ran.code, "pending" in ran.out) == (0, True)
    assert [call.body for call in api.calls if call.method == "POST"] == [{"run": 1}, {"run": 1}]


def test_an_output_that_breaks_off_is_an_error_without_follow(scripted: CommandLine, api: ScriptedApi) -> None:
    api.script(Answer(raw=b"half", breaks=True))

    ran = scripted("logs", job_document()["id"])

    assert (ran.code, ran.out) == (5, "half")


def test_a_run_that_workron_fails_leaves_with_125(scripted: CommandLine, api: ScriptedApi) -> None:
    api.script(problem(422, "validation", "no", errors=[{"loc": ["body", "command"], "msg": "is too long"}]))

    ran = scripted("run", "true")

    assert (ran.code, ran.err) == (125, "workron: command: is too long\n")


def test_ls_goes_on_over_pages_that_are_empty(scripted: CommandLine, api: ScriptedApi) -> None:
    api.script(job_list(next_cursor="a"), job_list(next_cursor="b"), job_list(job_document()))

    ran = scripted("ls", "--name", "rare", "-o", "jsonl")

    assert len(ran.documents) == 1
    assert [call.query.get("cursor") for call in api.calls] == [None, "a", "b"]
    assert {call.query["name"] for call in api.calls} == {"rare"}
