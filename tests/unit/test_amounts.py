"""Amounts in messages have the right number."""

import ast
from collections.abc import Iterator

import pytest

from tests.local_stack import ROOT
from workron.amounts import counted, some
from workron.cli.bulk import progress
from workron.client.documents import ActionDoc
from workron.errors import DependencyCycle, QueueFull, UnknownDependency

NOUNS = {
    *("attempts", "dependencies", "faults", "fields", "jobs", "keys", "queues", "schedules", "slots", "tasks", "times"),
    *("workers", "workflows"),
}
TEXTS = {"kind", "job.id"}
"""Expressions before such a noun that are no numbers."""


@pytest.mark.parametrize(("number", "text"), [(0, "0 jobs"), (1, "1 job"), (2, "2 jobs"), (12_000, "12,000 jobs")])
def test_a_noun_has_the_number_of_its_amount(number: int, text: str) -> None:
    assert counted(number, "job") == text


def test_a_cycle_of_1500_jobs_was_one_line_of_10000_characters() -> None:
    assert str(DependencyCycle(["a", "b"])) == "the workflow has a dependency cycle: a → b → a"
    cycle = DependencyCycle([f"job-{number}" for number in range(1_500)])
    assert len(cycle.members) == 1_500
    assert str(cycle) == (
        "the workflow has a dependency cycle: "
        "job-0 → job-1 → job-2 → job-3 → job-4 → job-5 → job-6 → job-7 → (1,492 more) → job-0"
    )


def test_a_message_names_some_of_many_jobs() -> None:
    assert some(["a", "b"]) == "a, b"
    assert str(UnknownDependency(list("abcdefghi"))).endswith("not exist: a, b, c, d, e, f, g, h and 1 more")


def test_a_verb_follows_its_noun() -> None:
    assert [counted(number, "job waits", "jobs wait") for number in (1, 2)] == ["1 job waits", "2 jobs wait"]


def test_one_job_that_fills_a_queue_was_reported_as_1_jobs() -> None:
    error = QueueFull("q", limit=1, waiting=1, size=1, rate=None, retry_after_s=1.0)
    assert "queue q is full: 1 job waits, the limit is 1" in str(error)


def test_one_checked_job_was_reported_as_1_jobs() -> None:
    action: ActionDoc = {
        "id": "x", "action": "retry", "state": "running", "filter": {}, "to": None, "dry_run": True,
        "created_at": "", "finished_at": None, "total": 1, "looked": 1, "matched": 1, "done": 0,
        "failed": 0, "first_error": None,
    }  # fmt: skip
    assert progress(action) == "retry: 100% of 1 job checked, 1 matches"


def amounts(source: str) -> Iterator[tuple[int, str]]:
    """Yield the expressions of f-strings before a plural noun, except constants: limits, which are more than 1."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            for value, text in zip(node.values, node.values[1:], strict=False):
                if isinstance(value, ast.FormattedValue) and isinstance(text, ast.Constant):
                    said = ast.unparse(value.value)
                    words = str(text.value).replace(",", " ").replace(";", " ").split()
                    if str(text.value).startswith(" ") and words and words[0] in NOUNS and not said.isupper():
                        yield node.lineno, said


def test_no_message_has_a_fixed_plural_after_a_number() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {said}"
        for room in ("api", "workers", "reaper", "workron")
        for path in sorted((ROOT / room).rglob("*.py"))
        for line, said in amounts(path.read_text())
    ]
    assert {one for one in found if one.rpartition(" ")[2] not in TEXTS} == set()


def test_a_fixed_plural_is_found() -> None:
    source = 'print(f"{MOST} jobs", f"{a:,} jobs wait", f"{a}jobs", f"{counted(b)} wait")'
    assert list(amounts(source)) == [(1, "a")]
