"""What commands do not import: heavy packages cost their start, and a worker over HTTP needs no Redis client."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.command_line import Answer, ScriptedApi, job_document, job_list
from tests.local_stack import ROOT

HEAVY: Final = {"asyncio", "fastapi", "httpx2", "pydantic", "redis", "rich", "uvicorn", "yaml"}
OURS: Final = {"__main__", "__mp_main__", "api", "lua", "reaper", "workers", "workron"}
OF_SETTINGS: Final = {"annotated_types", "click", "pydantic", "pydantic_core", "typing_extensions", "typing_inspection"}
OF_STORE: Final = OF_SETTINGS | {"cronsim", "hiredis", "opentelemetry", "orjson", "redis", "uuid_utils"}
OF_HTTP: Final = {"annotated_doc", "anyio", "cython_runtime", "fastapi", "httptools", "starlette", "uvicorn"}
PACKAGES: Final = {"worker": OF_STORE, "reaper": OF_STORE, "api": OF_STORE | OF_HTTP}
"""All packages that a process imports to start. Most of its start is imports: another one has to be worth its time."""
JOB: Final = job_document()["id"]
PROGRAM: Final = """
import atexit, sys
atexit.register(lambda: print("imported:", *sys.modules, file=sys.stderr))
from workron.__main__ import main
sys.argv[0] = "workron"
main()
"""


def packages_beyond(stderr: str, expected: set[str]) -> set[str]:
    """Return the imported packages that are neither ours, nor the standard library's, nor expected."""
    private = {name for name in imported(stderr) if name.startswith("_")}  # parts of extension modules
    return imported(stderr) - private - OURS - set(sys.stdlib_module_names) - expected


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


@pytest.mark.parametrize("name", PACKAGES)
def test_a_process_imports_no_package_that_its_start_does_not_need(name: str) -> None:
    words = [name, "--redis", "redis://127.0.0.1:9", *(["--port", "0", "--no-auth"] if name == "api" else [])]
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert "redis unavailable" in process.stderr.readline()  # it has all that it needs to reach one
        process.send_signal(signal.SIGTERM)
        stderr = process.stderr.read()
    assert packages_beyond(stderr, PACKAGES[name]) == set()
    if name != "api":  # FastAPI imports it
        assert "pydantic.v1" not in stderr.split()


def test_no_model_of_a_document_is_built_before_it_is_used() -> None:
    program = """
import api.server
from workron.specs.documented import Documented
def models(base): return [base, *(each for model in base.__subclasses__() for each in models(model))]
built = [model.__name__ for model in models(Documented) if model.__pydantic_complete__]
print(len(models(Documented)) > 50, *built)
"""
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout == "True\n"


def test_up_imports_what_its_processes_share_and_nothing_else(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        program = [sys.executable, "-c", PROGRAM, "up", "--data-dir", tmp_path, "--port", port]
        ran = subprocess.run(program, cwd=ROOT, capture_output=True, text=True)
    assert "is taken" in ran.stderr
    assert packages_beyond(ran.stderr, OF_STORE | {"setproctitle"}) == set()
