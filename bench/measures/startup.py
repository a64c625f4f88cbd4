"""What starting costs: `workron --help`, a call of each usual command, and `workron up` until a first job is done."""

import http.client
import json
import resource
import subprocess
import sys
import tempfile
import time
from typing import Final

from bench.plan import Plan
from bench.real import KEY, environment, process, wait_for_port
from bench.running import RunError
from bench.server import free_port
from bench.targets import CALL_CPU

_CALLS: Final = 15


def measure(plan: Plan, _turn: int) -> None:
    for _ in range(3):
        plan.results.add("workron --help", "workron", help_s())
    plan.results.add("up to first job done", "workron", up_s())
    calls(plan)


def help_s() -> float:
    started = time.perf_counter()
    command = [sys.executable, "-m", "workron", "--help"]
    subprocess.run(command, env=environment(), stdout=subprocess.DEVNULL, check=True)  # noqa: S603 - our own program
    return time.perf_counter() - started


def up_s() -> float:
    port = free_port()
    started = time.perf_counter()
    with process("up", "--port", str(port), WORKRON_API_KEY=KEY) as running:
        wait_for_port(port, running)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        job = _ask(connection, "POST", "/jobs", json.dumps({"command": "true"}))
        job = _ask(connection, "GET", f"/jobs/{job['id']}?wait=20")
        took = time.perf_counter() - started
        connection.close()
    if job["status"] != "done":
        raise RunError(f"the first job is {job['status']} after 20 s")
    return took


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
                bare = _cpu_s(["-c", "pass"], variables)
                plan.results.add(CALL_CPU, f"workron {words[0]}", _cpu_s(["-m", "workron", *words], variables) / bare)


def _cpu_s(words: list[str], variables: dict[str, str]) -> float:
    """Return the CPU time of a call of Python."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], env=variables, stdout=subprocess.DEVNULL, check=True)  # noqa: S603 - ours
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _ask(connection: http.client.HTTPConnection, method: str, path: str, body: str | None = None) -> dict[str, str]:
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    connection.request(method, path, body, headers)
    answer: dict[str, str] = json.loads(connection.getresponse().read())
    return answer
