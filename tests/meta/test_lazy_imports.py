"""What commands do not import: heavy packages cost their start, and a worker over HTTP needs no Redis client."""

import os
import signal
import subprocess
import sys
from typing import Final

import pytest

from tests.command_line import Answer, ScriptedApi, job_document, job_list
from tests.local_stack import ROOT

HEAVY: Final = {"asyncio", "fastapi", "httpx2", "pydantic", "redis", "rich", "structlog", "uvicorn", "yaml"}
JOB: Final = job_document()["id"]
PROGRAM: Final = """
import atexit, sys
atexit.register(lambda: print("imported:", *sys.modules, file=sys.stderr))
from workron.__main__ import main
sys.argv[0] = "workron"
main()
"""


def imported(stderr: str) -> set[str]:
    """Return the top-level packages that the program says it has imported."""
    (line,) = [line for line in stderr.splitlines() if line.startswith("imported:")]
    return {name.partition(".")[0] for name in line.split()[1:]}


def test_help_imports_no_heavy_package() -> None:
    program = [sys.executable, "-c", PROGRAM, "--help"]
    ran = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "Usage: workron" in ran.stdout
    assert imported(ran.stderr) & HEAVY == set()


@pytest.mark.parametrize("words", ["submit true", "ls --status done -o json", f"show {JOB}", f"wait {JOB}", "ls"])
def test_ordinary_calls_import_no_heavy_package(words: str) -> None:
    done = job_document(status="done", exit_code=0)
    environment = {**os.environ, "WORKRON_API_KEY": "0123456789abcdef"}

    with ScriptedApi().serving() as api:
        api.answer = lambda call: job_list(done) if call.path == "/jobs" and call.method == "GET" else Answer(done)
        program = [sys.executable, "-c", PROGRAM, words.split()[0], "--url", api.url, *words.split()[1:]]
        ran = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)

    assert JOB in ran.stdout
    assert imported(ran.stderr) & HEAVY == set()


def test_a_worker_over_http_imports_no_redis() -> None:
    program = [sys.executable, "-c", PROGRAM, "worker", "--api", "http://127.0.0.1:9"]
    with subprocess.Popen(program, cwd=ROOT, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stderr is not None
        assert "api unavailable" in worker.stderr.readline()  # it has all that it needs to reach one
        worker.send_signal(signal.SIGTERM)
        names = imported(worker.stderr.read())
    assert "httpx2" in names
    assert names & {"redis", "fastapi"} == set()
