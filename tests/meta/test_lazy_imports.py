"""What commands do not import: heavy packages cost their start, and a worker over HTTP needs no Redis client."""

import signal
import subprocess
import sys
from typing import Final

from tests.local_stack import ROOT

HEAVY: Final = {"fastapi", "httpx2", "pydantic", "redis", "rich", "uvicorn"}
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


def test_a_worker_over_http_imports_no_redis() -> None:
    program = [sys.executable, "-c", PROGRAM, "worker", "--api", "http://127.0.0.1:9"]
    with subprocess.Popen(program, cwd=ROOT, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stderr is not None
        assert "api unavailable" in worker.stderr.readline()  # it has all that it needs to reach one
        worker.send_signal(signal.SIGTERM)
        names = imported(worker.stderr.read())
    assert "httpx2" in names
    assert names & {"redis", "fastapi"} == set()
