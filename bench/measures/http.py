"""Submitting over HTTP: single jobs on 32 connections relative to a bare route, bulk and workflows, and idle latency.

Our API is the real process with its key; the load generator is a process of its own.
"""

import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.measures.latency import JOBS as LATENCY_JOBS
from bench.measures.latency import PAUSE_MS, percentiles
from bench.plan import Plan
from bench.real import KEY, environment, real_api, wait_for_port
from bench.running import RunError
from bench.server import free_port

CONNECTIONS = 32
REQUESTS = 4_000
BULK = 10_000
BULKS = 5


def measure(plan: Plan, turn: int) -> None:
    requests = plan.scaled(REQUESTS, least=200)
    one = json.dumps({"command": "true"})
    for who in ("workron", "bare FastAPI route")[:: 1 if turn % 2 else -1]:
        plan.server.clear()
        with _server(plan, who) as port:
            _load(port, 100, CONNECTIONS, "/jobs", one)  # connections, imports, scripts
            rate = requests / _load(port, requests, CONNECTIONS, "/jobs", one)
        plan.results.add("POST /jobs, 32 connections", who, rate)
        plan.say(f"  POST /jobs, {who}: {rate:,.0f}/s")
    _bulk(plan)
    _latency(plan)


@contextmanager
def _server(plan: Plan, who: str) -> Iterator[int]:
    if who == "workron":
        with real_api(plan.server.url) as port:
            yield port
        return
    port = free_port()
    command = [sys.executable, "-m", "bench.bare", str(port)]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL) as process:  # noqa: S603 - our own
        try:
            wait_for_port(port, process)
            yield port
        finally:
            process.terminate()


def _bulk(plan: Plan) -> None:
    size, times = plan.scaled(BULK, least=100), 2 if plan.quick else BULKS
    plain = json.dumps({"jobs": [{"command": "true"}] * size})
    chain = [{"command": "true", "name": f"n{n}", "depends_on": [f"n{n - 1}"] if n % 10 else []} for n in range(size)]
    workflow = json.dumps({"name": "bench", "jobs": chain})
    with real_api(plan.server.url) as port:
        for name, path, body in (("POST /jobs/bulk", "/jobs/bulk", plain), ("POST /workflows", "/workflows", workflow)):
            plan.server.clear()
            _load(port, 1, 1, path, body)
            plan.server.clear()
            rate = size * times / _load(port, times, 1, path, body)
            plan.results.add(name, "workron", rate)
            plan.say(f"  {name}: {rate:,.0f} jobs/s")


def _load(port: int, requests: int, connections: int, path: str, body: str) -> float:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(body)
        file.flush()
        command = [sys.executable, "-m", "bench.load", str(port), str(connections), str(requests), path, file.name, KEY]
        root = Path(__file__).parents[2]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=180, check=False)  # noqa: S603 - our own
    if done.returncode != 0:
        raise RunError(f"{path}: {done.stderr.strip().splitlines()[-1]}")
    return float(json.loads(done.stdout)["seconds"])


def _latency(plan: Plan) -> None:
    """Submit stamping jobs over one HTTP connection to the worker that starts no commands."""
    jobs = plan.scaled(LATENCY_JOBS)
    plan.server.clear()
    headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
    with real_api(plan.server.url) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.connect()
        with plan.runner.worker(plan.ours):
            plan.runner.enqueue(plan.ours, "bulk", 20)
            plan.runner.pipe.count(20)
            moments = []
            for number in range(jobs):
                time.sleep(PAUSE_MS / 1000)  # the worker has to be idle again: its latency is measured
                moments.append(time.monotonic_ns())
                connection.request("POST", "/jobs", json.dumps({"command": str(number)}), headers)
                connection.getresponse().read()
            started = plan.runner.pipe.stamps(jobs)
        connection.close()
    p50, p99 = percentiles([(started[number] - moment) / 1e6 for number, moment in enumerate(moments)])
    plan.results.add("latency p50", "workron over HTTP", p50)
    plan.results.add("latency p99", "workron over HTTP", p99)
