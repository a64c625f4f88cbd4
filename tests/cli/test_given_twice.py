"""What is given twice, or not at all, to a command."""

import pytest

from tests.command_line import CommandLine, ScriptedApi, problem


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("submit", "--env", "A=1", "--env", "A=2", "true"), "--env: A is given more than once"),
        (("submit", "--metadata", "a=1", "--metadata", '{"a": 1}', "true"), "--metadata: a is given more than once"),
        (("submit", "--metadata", '{"a": 1, "a": 2}', "true"), "duplicate key 'a'"),
        (("ls", "--metadata", "a=1", "--metadata", "a=2"), "--metadata: a is given more than once"),
    ],
)
def test_the_first_of_two_values_of_a_key_was_dropped_in_silence(
    scripted: CommandLine, api: ScriptedApi, words: tuple[str, ...], expected: str
) -> None:
    ran = scripted(*words)
    assert (ran.code, ran.out, api.calls) == (2, "", [])
    assert expected in ran.err


@pytest.mark.parametrize("given", ["", "\n \n"])
@pytest.mark.parametrize(
    "words",
    [("wait", "-"), ("cancel", "-"), ("retry", "-"), ("submit", "--after", "-", "true")],
)
def test_no_ids_on_stdin_were_a_success(
    scripted: CommandLine, api: ScriptedApi, words: tuple[str, ...], given: str
) -> None:
    """The command before it in the pipe had failed; a job that was to follow others followed none."""
    ran = scripted(*words, given=given)
    assert (ran.code, ran.out, ran.err, api.calls) == (2, "", "workron: there are no ids on stdin\n", [])


def test_a_hundred_errors_were_one_line_of_thousands_of_characters(scripted: CommandLine, api: ScriptedApi) -> None:
    errors = [{"loc": ["body", "jobs", number, "command"], "msg": "Field required"} for number in range(100)]
    api.answer = lambda _: problem(422, "validation", "many", errors=errors)
    ran = scripted("submit", "true")
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1
    assert ran.err.endswith("jobs[7].command: Field required; and 92 more errors\n")
