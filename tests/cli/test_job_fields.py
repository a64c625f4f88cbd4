"""Retry policy, results, progress, tags and metadata at the command line, against a real stack."""

from typing import Any

from tests.command_line import CommandLine


def submit(workron: CommandLine, *args: str) -> str:
    submitted = workron("submit", *args)
    assert submitted.code == 0, submitted.err
    return submitted.out.strip()


def document(workron: CommandLine, job_id: str) -> dict[str, Any]:
    found: dict[str, Any] = workron("show", job_id, "-o", "json").document
    return found


def test_every_flag_becomes_its_field(workron: CommandLine) -> None:
    waits = ("--retry-delay", "90s", "--retry-factor", "3", "--retry-max-delay", "2h", "--retry-jitter", "0.1")
    codes = ("--retry-on-exit", "1, 64-78", "--no-retry-on-exit", "2")
    about = ("--tag", "eu", "--tag", "nightly", "--metadata", "team=data=a", "--metadata", '{"n": 3}')
    key = ("--concurrency", "customer-7:2")

    job = document(workron, submit(workron, *waits, *codes, *about, *key, "--delay", "1h", "true"))

    assert job["retry"] == {"delay": 90, "factor": 3, "max_delay": 7200, "jitter": 0.1}
    assert (job["retry_on_exit"], job["no_retry_on_exit"]) == ([1, "64-78"], [2])
    assert (job["tags"], job["metadata"]) == (["eu", "nightly"], {"team": "data=a", "n": 3})
    assert job["concurrency"] == {"key": "customer-7", "limit": 2}
    shown = workron("show", job["id"]).out
    for expected in (
        "concurrency customer-7, at most 2 at once",
        "after 1m30s, at most 2h00m, factor 3, jitter 0.1, only on exit 1, 64-78, not on exit 2",
        "eu, nightly",
        '{"team": "data=a", "n": 3}',
    ):
        assert expected in " ".join(shown.split()), shown


def test_a_job_ends_at_once_after_an_exit_code_that_is_not_tried_again(workron: CommandLine) -> None:
    job_id = submit(workron, "--no-retry-on-exit", "2", "exit 2")

    assert workron("wait", job_id).code == 1

    assert document(workron, job_id)["attempts"] == 1


def test_result_and_progress_are_shown(workron: CommandLine) -> None:
    job_id = submit(workron, "echo progress=0.75 > $WORKRON_CONTROL; echo '{\"rows\": 3}' > $WORKRON_RESULT")
    assert workron("wait", job_id).code == 0

    shown = workron("show", job_id).out

    assert ("0.75" in shown, '{"rows": 3}' in shown) == (True, True)
    assert document(workron, job_id)["result"] == {"rows": 3}


def test_ls_finds_by_tag_and_metadata(workron: CommandLine) -> None:
    one = submit(workron, "--tag", "found", "--tag", "x", "--metadata", "team=data", "true")
    two = submit(workron, "--tag", "found", "--metadata", "team=web", "true")

    def ids(*filters: str) -> list[str]:
        return [job["id"] for job in workron("ls", *filters, "-o", "jsonl").documents]

    assert ids("--tag", "found") == [two, one]
    assert ids("--tag", "found", "--tag", "x") == [one]
    assert ids("--tag", "found", "--metadata", "team=web") == [two]
    assert ids("--tag", "nobody has it") == []


def test_a_senseless_option_is_reported_in_one_line(workron: CommandLine) -> None:
    for args in (
        ("--retry-on-exit", "one"),
        ("--no-retry-on-exit", "1-2-3"),
        ("--retry-delay", "soon"),
        ("--metadata", "team"),
        ("--metadata", "{"),
        ("--metadata", "[1]"),
    ):
        ran = workron("submit", *args, "true")
        assert (ran.code, ran.out) == (2, "")
        assert args[0] in ran.err.splitlines()[-1]
    for args, field in ((("--retry-on-exit", "300"), "retry_on_exit"), (("--retry-jitter", "2"), "retry.jitter")):
        ran = workron("submit", *args, "true")
        assert ran.code == 2
        assert field in ran.err
    assert workron("ls", "--metadata", "team").code == 2


def test_a_concurrency_key_without_its_limit_is_refused(workron: CommandLine) -> None:
    for wrong in ("customer-7", "customer-7:", ":2", "customer-7:two"):
        ran = workron("submit", "--concurrency", wrong, "true")
        assert ran.code == 2
        assert "is not KEY:N; write it like customer-7:2" in " ".join(ran.err.split())
