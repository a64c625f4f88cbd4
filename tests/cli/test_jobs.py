"""Looking at jobs, waiting for them, cancelling and retrying them, against a real stack."""

import time

from tests.command_line import CommandLine

UNKNOWN = "0000000000000000000000"


def submit(workron: CommandLine, *args: str) -> str:
    submitted = workron("submit", *args)
    assert submitted.code == 0, submitted.err
    return submitted.out.strip()


def test_ls_lists_the_newest_jobs_first(workron: CommandLine) -> None:
    ids = [submit(workron, "--name", "listed", "true") for _ in range(3)]

    jobs = workron("ls", "--name", "listed", "-o", "json").document

    assert [job["id"] for job in jobs] == ids[::-1]


def test_ls_filters(workron: CommandLine) -> None:
    waiting = submit(workron, "--queue", "filtered", "--name", "one", "true")
    delayed = submit(workron, "--queue", "filtered", "--name", "two", "--delay", "1h", "true")

    def ids(*filters: str) -> list[str]:
        return [job["id"] for job in workron("ls", "--queue", "filtered", *filters, "-o", "jsonl").documents]

    assert ids() == [delayed, waiting]
    assert ids("--status", "pending") == [waiting]
    assert ids("--name", "two") == [delayed]


def test_ls_says_on_stderr_that_there_are_more(workron: CommandLine) -> None:
    ids = [submit(workron, "--queue", "many", "true") for _ in range(3)]

    some = workron("ls", "--queue", "many", "--limit", "2")
    every = workron("ls", "--queue", "many", "--all")

    assert "only the first 2 are listed" in some.err
    assert [line.split()[0] for line in some.out.splitlines()] == ["ID", *ids[:0:-1]]
    assert [line.split()[0] for line in every.out.splitlines()] == ["ID", *ids[::-1]]
    assert every.err == ""


def test_ls_without_a_match_prints_nothing_on_stdout(workron: CommandLine) -> None:
    ran = workron("ls", "--name", "nobody has this name")

    assert (ran.code, ran.out, ran.err) == (0, "", "workron: no jobs match\n")
    assert workron("ls", "--name", "nobody has this name", "-o", "json").document == []


def test_a_reader_that_goes_away_is_no_error(workron: CommandLine) -> None:
    with workron.start("run", "yes") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()

        assert process.stderr.read() == b""
        assert process.wait(30) == 141

    for job in workron("ls", "--status", "running", "-o", "jsonl").documents:
        workron("cancel", job["id"])


def test_show_tells_all_about_a_job(workron: CommandLine) -> None:
    parent = submit(workron, "--name", "parent", "true")
    options = ("--name", "child", "--env", "A=b", "--after", parent, "--max-attempts", "1")
    job_id = submit(workron, *options, "echo no; exit 4")
    workron("wait", job_id)

    shown = workron("show", job_id).out

    assert shown.splitlines()[0] == f"{job_id}  failed  child"
    for expected in ("echo no; exit 4", "A=b", f"{parent} done, is done", "exit 4", str(workron.cwd), "1 of 1"):
        assert expected in shown
    assert workron("show", job_id, "-o", "json").document["exit_code"] == 4


def test_logs_prints_the_output(workron: CommandLine) -> None:
    job_id = submit(workron, "echo to stdout; echo to stderr >&2")
    workron("wait", job_id)

    logs = workron("logs", job_id)

    assert (logs.code, logs.out, logs.err) == (0, "to stdout\nto stderr\n", "")


def test_logs_follows_until_the_job_has_ended(workron: CommandLine) -> None:
    job_id = submit(workron, "echo first; sleep 0.5; echo second")

    logs = workron("logs", "-f", job_id)

    assert (logs.code, logs.out) == (0, "first\nsecond\n")


def test_wait_tells_by_its_exit_code_whether_all_are_done(workron: CommandLine) -> None:
    good, bad = submit(workron, "true"), submit(workron, "--max-attempts", "1", "exit 5")

    assert workron("wait", good).code == 0
    ran = workron("wait", good, bad)
    assert ran.code == 1
    assert [line.split()[:4] for line in ran.out.splitlines()[1:]][1] == [bad, "failed", "exit", "5"]


def test_wait_reads_ids_from_stdin(workron: CommandLine) -> None:
    ids = [submit(workron, "true") for _ in range(2)]

    ran = workron("wait", "-o", "jsonl", "-", given="\n".join(ids))

    assert [job["id"] for job in ran.documents] == ids
    assert workron("wait", "-").code == 2  # the command before it in the pipe has failed


def test_wait_gives_up_after_its_limit(workron: CommandLine) -> None:
    job_id = submit(workron, "--delay", "1h", "true")
    started = time.monotonic()

    ran = workron("wait", "--timeout", "300ms", job_id)

    assert (ran.code, ran.out) == (124, "")
    assert f"{job_id} is still scheduled" in ran.err
    assert time.monotonic() - started < 10


def test_cancelling_stops_a_running_command(workron: CommandLine) -> None:
    process = workron.start("run", "echo started; sleep 60")
    assert process.stdout is not None
    process.stdout.readline()
    job_id = workron("ls", "--status", "running", "-o", "jsonl").documents[0]["id"]

    cancelled = workron("cancel", job_id)

    assert cancelled.code == 0
    assert cancelled.out.splitlines()[1].split()[0] == job_id
    assert workron("wait", job_id).code == 1
    process.communicate(timeout=30)
    assert process.returncode == 128 + 15
    assert workron("show", job_id, "-o", "json").document["status"] == "cancelled"


def test_one_job_that_cannot_be_cancelled_does_not_spare_the_others(workron: CommandLine) -> None:
    done, waiting = submit(workron, "true"), submit(workron, "--delay", "1h", "true")
    workron("wait", done)

    ran = workron("cancel", UNKNOWN, done, waiting)

    assert ran.code == 3
    assert [line.split()[:2] for line in ran.out.splitlines()[1:]] == [[waiting, "cancelled"]]
    assert len(ran.err.splitlines()) == 2
    assert UNKNOWN in ran.err
    assert done in ran.err


def test_retry_runs_a_job_again(workron: CommandLine) -> None:
    job_id = submit(workron, "--max-attempts", "1", "test -e mended")
    assert workron("wait", job_id).code == 1
    (workron.cwd / "mended").touch()

    assert workron("retry", job_id).code == 0

    assert workron("wait", job_id).code == 0
    assert workron("show", job_id, "-o", "json").document["run"] == 2


def test_retrying_a_job_that_goes_on_is_a_conflict(workron: CommandLine) -> None:
    job_id = submit(workron, "--delay", "1h", "true")

    ran = workron("retry", job_id)

    assert (ran.code, ran.out) == (4, "")
    assert job_id in ran.err


def test_an_unknown_job_has_an_exit_code_of_its_own(workron: CommandLine) -> None:
    for command in ("show", "logs", "wait", "cancel", "retry"):
        ran = workron(command, UNKNOWN)
        assert (ran.code, ran.out, ran.err) == (3, "", f"workron: no such job: {UNKNOWN}\n"), command


def test_an_id_that_is_none_is_not_found_rather_than_asked_for(workron: CommandLine) -> None:
    for nonsense in ("", "..", "a/b", "?x=1", "%2e%2e"):
        assert workron("show", nonsense).code == 3


def test_wrong_requests_name_the_field_in_one_line(workron: CommandLine) -> None:
    for args, expected in {
        ("--priority", "12"): "priority:",
        ("--name", "a\x1bb"): "name:",
        ("--after", UNKNOWN): UNKNOWN,
        ("--after", "x:sometimes"): "--after",
        ("--timeout", "soon"): "--timeout",
        ("--run-at", "tomorrow"): "--run-at",
        ("--env", "NOT_SET_HERE"): "--env",
    }.items():
        ran = workron("submit", *args, "true")
        assert (ran.code, ran.out) == (2, "")
        assert expected in ran.err.splitlines()[-1]
        assert "\x1b" not in ran.err


def test_a_command_that_is_not_unicode_is_refused_clearly(workron: CommandLine) -> None:
    ran = workron("submit", "echo \udcff")

    assert (ran.code, ran.err) == (
        2,
        "workron: the request holds text that is not valid Unicode; commands must be UTF-8\n",
    )


def test_queues_and_workers_are_listed(workron: CommandLine) -> None:
    submit(workron, "--queue", "counted", "true")
    submit(workron, "--queue", "counted", "--delay", "1h", "true")

    queues = {queue["name"]: queue["counts"] for queue in workron("queues", "-o", "json").document}
    table = {line.split()[0]: line.split()[1] for line in workron("queues").out.splitlines()}
    worker = workron("workers", "-o", "jsonl").documents[0]

    assert (queues["counted"]["pending"], queues["counted"]["scheduled"]) == (1, 1)
    assert table["counted"] == "1"
    assert worker["slots"] == 2
    assert worker["id"] in workron("workers").out


def test_health_tells_how_the_system_is(workron: CommandLine) -> None:
    health = workron("health")

    assert health.code == 0
    assert "ok" in health.out.splitlines()[0]
    assert workron("health", "-o", "json").document["server"]["appendonly"] is True


def test_why_says_it_in_a_sentence(workron: CommandLine) -> None:
    job = submit(workron, "--queue", "nobody", "true")

    assert "which no worker serves now" in workron("why", job).out
    assert workron("why", job, "-o", "json").document["facts"]["held_by"] == "no_worker"
