"""Jobs and requests that could break a scheduler, through the real API and a real worker: each is treated right, and
neither process has died of it.
"""

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.up import Up

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

KEPT = 2 * 128 * 1024
"""Bytes of output that are stored, beside the line that says what is missing."""
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with Up(tmp_path_factory.mktemp("up"), "--slots", "4", WORKRON_KILL_GRACE="0.5s") as up:
        up.start()
        yield up


@pytest.fixture
def up(stack: Up) -> Iterator[Up]:
    """The stack; after the test, the same processes must run the next job."""
    before = stack.pids
    yield stack
    assert run(stack, command="echo alive")["status"] == "done"
    assert stack.pids == before


def submit(up: Up, **job: Any) -> httpx2.Response:
    return up.http.post("/jobs", json=job)


def run(up: Up, **job: Any) -> dict[str, Any]:
    """Run a job to its end; returns how it is then."""
    answer = submit(up, **{"max_attempts": 1, **job})
    assert answer.status_code == 201, answer.text
    ended: dict[str, Any] = up.http.get(f"/jobs/{answer.json()['id']}", params={"wait": 60}, timeout=90).json()
    assert ended["finished_at"] is not None
    return ended


def output_of(up: Up, job: dict[str, Any]) -> httpx2.Response:
    return up.http.get(f"/jobs/{job['id']}/output")


def seconds_of(job: dict[str, Any]) -> float:
    started, finished = (datetime.fromisoformat(job[name]) for name in ("started_at", "finished_at"))
    return (finished - started).total_seconds()


def assert_refused(answer: httpx2.Response, status: int, kind: str) -> None:
    assert (answer.status_code, answer.json()["type"]) == (status, f"/problems/{kind}"), answer.text[:1000]


def test_100_mb_of_output_leave_their_beginning_and_their_end(up: Up) -> None:
    job = run(up, command="seq -w 1 12500000")
    assert job["status"] == "done"
    output = output_of(up, job)
    assert output.headers["x-workron-output-total"] == str(9 * 12_500_000)
    head, cut, tail = output.content[: KEPT // 2], output.content[KEPT // 2 : -KEPT // 2], output.content[-KEPT // 2 :]
    assert head == b"".join(b"%08d\n" % number for number in range(1, 15_000))[: KEPT // 2]
    assert tail == b"".join(b"%08d\n" % number for number in range(12_485_001, 12_500_001))[-KEPT // 2 :]
    assert f"{9 * 12_500_000 - KEPT:,}".encode() in cut, cut


def test_binary_output_comes_back_byte_by_byte(up: Up) -> None:
    job = run(up, argv=["printf", "".join(f"\\{byte:03o}" for byte in range(256))])
    assert job["status"] == "done"
    assert output_of(up, job).content == bytes(range(256))


def test_a_failure_with_binary_output_is_reported_as_text(up: Up) -> None:
    job = run(up, command="printf 'caf\\351 \\000\\377'; exit 4")
    assert (job["status"], job["exit_code"]) == ("failed", 4)
    assert "caf" in job["error"]


def test_a_command_that_closes_its_output_goes_on_to_its_own_end(up: Up, tmp_path: Path) -> None:
    job = run(up, command=f"echo before; exec >&- 2>&-; sleep 0.5; touch {tmp_path}/after; exit 7")
    assert (job["status"], job["exit_code"]) == ("failed", 7)
    assert (tmp_path / "after").exists()
    assert seconds_of(job) >= 0.5
    assert output_of(up, job).content == b"before\n"


@pytest.mark.parametrize("leave", ["", "setsid"], ids=["in its group", "in a session of its own"])
def test_a_daemon_that_holds_the_output_does_not_hold_up_the_end(up: Up, tmp_path: Path, leave: str) -> None:
    pid_file = tmp_path / "pid"
    daemon = f"{leave} sh -c 'echo $$ > {pid_file}; exec sleep 60' &"
    job = run(up, command=f"{daemon} while ! test -s {pid_file}; do sleep 0.01; done; echo started")
    with suppress(ProcessLookupError):
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
    assert job["status"] == "done"
    assert seconds_of(job) < 1
    assert output_of(up, job).content == b"started\n"


@pytest.mark.parametrize(
    "job",
    [
        {"command": ""},
        {"argv": []},
        {"argv": [""]},
        {"command": "echo \0"},
        {"argv": ["echo", "\0"]},
        {"command": "true", "name": "nul\0"},
        {"command": "true", "cwd": "/\0"},
        {"command": "true", "env": {"A": "\0"}},
    ],
    ids=repr,
)
def test_an_empty_command_and_a_nul_byte_are_refused(up: Up, job: dict[str, Any]) -> None:
    answer = submit(up, **job)
    assert_refused(answer, 422, "validation")
    assert answer.json()["errors"][0]["loc"]


def test_a_command_of_1_mb_runs(up: Up) -> None:
    comment = "#" + "x" * (MIB - 100)
    job = run(up, command=f"{comment}\necho end of it")
    assert job["status"] == "done"
    assert output_of(up, job).content == b"end of it\n"


def test_an_argument_that_the_system_does_not_take_fails_the_job_with_a_reason(up: Up) -> None:
    job = run(up, argv=["true", "x" * (MIB - 100)])
    assert (job["status"], job["reason"]) == ("failed", "spawn")
    assert "too long" in job["error"]


@pytest.mark.parametrize("name", ["🛠️ größe", "日本語", "\u202eright to left", "a" * 200], ids=ascii)
def test_names_are_any_text(up: Up, name: str) -> None:
    job = run(up, command='printf %s "$WHAT"', name=name, env={"WHAT": name})
    assert (job["status"], job["name"]) == ("done", name)
    assert output_of(up, job).content == name.encode()
    assert [found["id"] for found in up.http.get("/jobs", params={"name": name}).json()["data"]] == [job["id"]]


@pytest.mark.parametrize(
    "body",
    [
        b'{"command": "true", "name": "\xff\xfe"}',
        b'{"command": "echo \xc3\x28"}',
        b'{"command": "true", "name": "\\ud800"}',
        b'{"command": "echo \\udfff"}',
        b'{"command": "true", "env": {"A\\ud800": ""}}',
        '{"command": "true"}'.encode("utf-16"),
    ],
    ids=ascii,
)
def test_text_that_is_not_unicode_is_refused(up: Up, body: bytes) -> None:
    assert_refused(post(up, "/jobs", body), 422, "validation")


def test_a_cwd_that_does_not_exist_fails_the_job_with_a_reason(up: Up, tmp_path: Path) -> None:
    job = run(up, command="true", cwd=f"{tmp_path}/nowhere")
    assert (job["status"], job["reason"], job["exit_code"]) == ("failed", "spawn", None)
    assert job["error"] == f"the working directory {tmp_path}/nowhere can't be used: No such file or directory"


def test_10_000_jobs_in_one_call_are_all_stored(up: Up) -> None:
    jobs = [{"argv": ["echo", str(number)], "queue": "nobody"} for number in range(10_000)]
    answer = up.http.post("/jobs/bulk", json={"jobs": jobs})
    assert answer.status_code == 201
    stored = answer.json()["data"]
    assert [job["argv"][1] for job in stored] == [str(number) for number in range(10_000)]
    assert len({job["id"] for job in stored}) == 10_000
    (counts,) = [queue["counts"] for queue in up.http.get("/queues").json()["data"] if queue["name"] == "nobody"]
    assert {status: count for status, count in counts.items() if count} == {"pending": 10_000}


def post(up: Up, path: str, body: bytes | Iterable[bytes]) -> httpx2.Response:
    return up.http.post(path, content=body, headers={"content-type": "application/json"})


@pytest.mark.parametrize("path", ["/jobs", "/jobs/bulk", "/workflows"])
def test_a_body_of_100_mb_is_refused(up: Up, path: str) -> None:
    assert_refused(post(up, path, b" " * 100_000_000), 413, "too-large")
    assert_refused(post(up, path, (b" " * MIB for _ in range(100))), 413, "too-large")


@pytest.mark.parametrize("path", ["/jobs", "/jobs/bulk", "/workflows"])
@pytest.mark.parametrize("opening", ["[", '{"jobs":', '{"command":[', '{"jobs":[{"depends_on":['], ids=repr)
def test_json_nested_100_000_deep_is_refused(up: Up, path: str, opening: str) -> None:
    assert_refused(post(up, path, (opening * 100_000).encode()), 422, "validation")


def test_a_workers_memory_stays_flat_under_1_gb_of_output(up: Up) -> None:
    run(up, command="head -c 10000000 /dev/zero")  # now its buffers are there
    process = Path(f"/proc/{up.pids['worker']}")
    before_kb = status_kb(process, "VmRSS")
    with suppress(OSError):  # not in every kernel; then VmHWM has the time before in it
        (process / "clear_refs").write_text("5")  # VmHWM begins anew
    job = run(up, command="head -c 1000000000 /dev/zero")
    assert job["status"] == "done"
    assert output_of(up, job).headers["x-workron-output-total"] == "1000000000"
    assert status_kb(process, "VmHWM") - before_kb < 20 * 1024
    assert abs(status_kb(process, "VmRSS") - before_kb) < 20 * 1024


def status_kb(process: Path, field: str) -> int:
    (line,) = [line for line in (process / "status").read_text().splitlines() if line.startswith(f"{field}:")]
    return int(line.split()[1])
