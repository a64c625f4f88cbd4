"""What starting costs: `workron --help`, a call of each usual command, and `workron up` until a first job is done."""

import http.client
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

from bench.plan import Plan
from bench.real import KEY, environment, process, wait_for_port
from bench.running import RunError
from bench.server import free_port
from bench.targets import CALL_CPU, UP_CPU, UP_WALL

_CALLS: Final = 15
_STARTS: Final = 3
_LIBRARIES: Final = "import fastapi, uvicorn, redis, pydantic"
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Spent(NamedTuple):
    wall_s: float
    cpu_s: float


def measure(plan: Plan, _turn: int) -> None:
    for _ in range(3):
        plan.results.add("workron --help", "workron", help_s())
    first_job(plan)
    calls(plan)


def help_s() -> float:
    started = time.perf_counter()
    command = [sys.executable, "-m", "workron", "--help"]
    subprocess.run(command, env=environment(), stdout=subprocess.DEVNULL, check=True)  # noqa: S603 - our own program
    return time.perf_counter() - started


def first_job(plan: Plan) -> None:
    """Measure `workron up` until a first job is done, also relative to the import of the libraries that it needs."""
    up_spent()  # compiles what has not run yet
    for _ in range(1 if plan.quick else _STARTS):
        imports = _spent(["-c", _LIBRARIES], environment())
        up = up_spent()
        plan.results.add("up to first job done", "workron", up.wall_s)
        plan.results.add(UP_WALL, "workron", up.wall_s / imports.wall_s)
        plan.results.add(UP_CPU, "workron", up.cpu_s / imports.cpu_s)


def up_spent() -> Spent:
    port = free_port()
    started = time.perf_counter()
    with process("up", "--port", str(port), WORKRON_API_KEY=KEY) as running:
        wait_for_port(port, running)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        job = _ask(connection, "POST", "/jobs", json.dumps({"command": "true"}))
        job = _ask(connection, "GET", f"/jobs/{job['id']}?wait=20")
        spent = Spent(time.perf_counter() - started, sum(map(cpu_s_of, family_of(running.pid))))
        connection.close()
    if job["status"] != "done":
        raise RunError(f"the first job is {job['status']} after 20 s")
    return spent


def calls(plan: Plan) -> None:
    """Measure calls against a running API, relative to a call of Python that does nothing."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with process("up", "--port", str(port), WORKRON_API_KEY=KEY) as running, tempfile.TemporaryDirectory() as folder:
        wait_for_port(port, running)
        variables = environment() | {"WORKRON_URL": url, "WORKRON_API_KEY": KEY, "XDG_DATA_HOME": folder}
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        job = _ask(connection, "POST", "/jobs", json.dumps({"command": "true"}))["id"]
        connection.close()
        for words in (("--help",), ("submit", "true"), ("ls",), ("show", job), ("wait", job)):
            for _ in range(1 if plan.quick else _CALLS):
                bare = _spent(["-c", "pass"], variables).cpu_s
                plan.results.add(
                    CALL_CPU, f"workron {words[0]}", _spent(["-m", "workron", *words], variables).cpu_s / bare
                )


def _spent(words: list[str], variables: dict[str, str]) -> Spent:
    """Return what a call of Python takes."""
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], env=variables, stdout=subprocess.DEVNULL, check=True)  # noqa: S603 - ours
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(time.perf_counter() - started, cpu_s)


def family_of(pid: int) -> list[int]:
    """Return the process and all its descendants."""
    family = [pid]
    for member in family:
        for task in Path(f"/proc/{member}/task").iterdir():
            family += map(int, (task / "children").read_text().split())
    return family


def cpu_s_of(pid: int) -> float:
    """Return the CPU time of a process and of its children that have ended."""
    _, _, fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    ended_ticks = sum(map(int, fields.split()[13:15]))
    own_ns = sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())
    return ended_ticks / _TICKS + own_ns / 1e9


def _ask(connection: http.client.HTTPConnection, method: str, path: str, body: str | None = None) -> dict[str, str]:
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    connection.request(method, path, body, headers)
    answer: dict[str, str] = json.loads(connection.getresponse().read())
    return answer
