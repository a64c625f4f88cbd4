"""Workers over HTTP: claims and reports per second relative to a bare route, and a thousand waiting workers."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.measures.latency import percentiles
from bench.plan import Plan
from bench.real import KEY, environment, process, wait_for_port
from bench.running import RunError
from bench.server import free_port
from workron.redis.keys import Keys

JOBS = 4_000
WAITING = 1_000


def measure(plan: Plan, turn: int) -> None:
    jobs = plan.scaled(JOBS, least=200)
    for who in ("workron", "bare FastAPI route")[:: 1 if turn % 2 else -1]:
        rate = _claims_and_reports(plan, jobs) if who == "workron" else _nothing(2 * jobs)
        plan.results.add("claim and done over HTTP, requests/s", who, rate)
        plan.say(f"  claim and done over HTTP, {who}: {rate:,.0f} requests/s")
    _parked(plan, plan.scaled(WAITING, least=50))


def _claims_and_reports(plan: Plan, jobs: int) -> float:
    plan.server.clear()
    with _api(plan) as (port, _):
        _submit(port, jobs)
        _load("drain", port, 100)  # connections, imports, scripts
        took = _load("drain", port, jobs - 200)
    return 2 * float(took["jobs"]) / float(took["seconds"])


def _nothing(requests: int) -> float:
    port = free_port()
    command = [sys.executable, "-m", "bench.bare", str(port)]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL) as bare:  # noqa: S603 - our own
        try:
            wait_for_port(port, bare)
            _load("nothing", port, 100)
            return requests / float(_load("nothing", port, requests)["seconds"])
        finally:
            bare.terminate()


def _parked(plan: Plan, count: int) -> None:
    plan.server.clear()
    with _api(plan) as (port, pid):
        _submit(port, 100)
        _load("drain", port, 100)
        before = _resident_kib(pid)
        command = _command("parked", port, count)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT) as load:  # noqa: S603 - our own
            assert load.stdin is not None and load.stdout is not None  # noqa: S101, PT018 - for the type checker
            load.stdout.readline()
            _wait_until_parked(plan, count)
            grown = _resident_kib(pid) - before
            load.stdin.write("go\n")
            load.stdin.flush()
            waits_ms = json.loads(load.stdout.readline())["waits_ms"]
    p50, p99 = percentiles(waits_ms)
    name = f"{count:,} claims that wait over HTTP"
    plan.results.add(f"{name}, KiB of the API each", "workron", grown / count)
    plan.results.add(f"{name}, submission to claim p50, ms", "workron", p50)
    plan.results.add(f"{name}, submission to claim p99, ms", "workron", p99)
    plan.say(f"  {name}: {grown / count:.1f} KiB each, p50 {p50:.2f} ms, p99 {p99:.2f} ms")


def _wait_until_parked(plan: Plan, count: int) -> None:
    deadline = time.monotonic() + 60
    while plan.server.client.zcard(Keys("default").parked("default")) < count:
        if time.monotonic() > deadline:
            raise RunError(f"not all of {count} claims were parked within 60 s")
        time.sleep(0.05)  # Redis tells of no parked request; at most 60 s


@contextmanager
def _api(plan: Plan) -> Iterator[tuple[int, int]]:
    port = free_port()
    with process("api", "--redis", plan.server.url, "--port", str(port), WORKRON_API_KEY=KEY) as started:
        wait_for_port(port, started)
        yield port, started.pid


def _submit(port: int, jobs: int) -> None:
    body = json.dumps({"jobs": [{"command": "true"}] * jobs})
    command = ["curl", "-sSf", "-o", "/dev/null", f"http://127.0.0.1:{port}/jobs/bulk", "--data-binary", "@-"]
    headers = ["-H", f"authorization: Bearer {KEY}", "-H", "content-type: application/json"]
    subprocess.run([*command, *headers], input=body.encode(), check=True, timeout=60)  # noqa: S603 - our own


_ROOT = Path(__file__).parents[2]


def _command(mode: str, port: int, count: int) -> list[str]:
    return [sys.executable, "-m", "bench.worker_load", mode, str(port), str(count), KEY]


def _load(mode: str, port: int, count: int) -> dict[str, Any]:
    done = subprocess.run(  # noqa: S603 - our own
        _command(mode, port, count), cwd=_ROOT, capture_output=True, text=True, timeout=180, check=False
    )
    if done.returncode != 0:
        raise RunError(f"{mode}: {done.stderr.strip().splitlines()[-1]}")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def _resident_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
