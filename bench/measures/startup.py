"""How long a user waits: `workron --help`, and `workron up` in an empty folder until a first job is done."""

import http.client
import json
import subprocess
import sys
import time

from bench.plan import Plan
from bench.real import KEY, environment, process, wait_for_port
from bench.running import RunError
from bench.server import free_port


def measure(plan: Plan, _turn: int) -> None:
    for _ in range(3):
        plan.results.add("workron --help", "workron", help_s())
    plan.results.add("up to first job done", "workron", up_s())


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


def _ask(connection: http.client.HTTPConnection, method: str, path: str, body: str | None = None) -> dict[str, str]:
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    connection.request(method, path, body, headers)
    answer: dict[str, str] = json.loads(connection.getresponse().read())
    return answer
