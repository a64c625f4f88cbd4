"""The clock of a worker is wrong by an hour: leases, timeouts, tokens and the times that are shown are right."""

import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.local.probe import wait_for
from tests.ports import free_port

pytestmark = [pytest.mark.chaos]

WRAPPER = Path(__file__).with_name("wrong_clock.py")
KEY = "a-key-for-tests-only"
LEASE_S = 1.5
HOUR_S = 3600
ADD = """
import os, urllib.request as u
url = f"{os.environ['WORKRON_URL']}/workflows/{os.environ['WORKRON_WORKFLOW_ID']}/jobs"
headers = {"authorization": f"Bearer {os.environ['WORKRON_TOKEN']}", "content-type": "application/json"}
u.urlopen(u.Request(url, b'{"jobs": [{"name": "two", "command": "true"}]}', headers))
"""
"""Has a workflow's command add a job, with the token that its worker got for it."""


@pytest.fixture
def http(processes: Any, tmp_path: Path) -> Iterator[httpx2.Client]:
    """An API and a reaper whose clocks are right."""
    port = free_port()
    processes.set(WORKRON_API_KEY=KEY)
    processes.start("api", "--port", str(port), "--data-dir", str(tmp_path))
    processes.reaper()
    url = f"http://127.0.0.1:{port}"
    headers = {"authorization": f"Bearer {KEY}"}
    with httpx2.Client(base_url=url, headers=headers, timeout=30, trust_env=False) as client:
        wait_for(lambda: is_ready(client), "readiness")
        yield client


def is_ready(client: httpx2.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 200
    except httpx2.HTTPError:
        return False


@pytest.fixture(params=[("redis", HOUR_S), ("redis", -HOUR_S), ("http", HOUR_S)], ids=str)
def worker(request: pytest.FixtureRequest, processes: Any, http: httpx2.Client) -> "subprocess.Popen[bytes]":
    kind, offset_s = request.param
    processes.launcher = [sys.executable, str(WRAPPER), str(offset_s)]
    processes.set(WORKRON_URL=str(http.base_url))
    started: subprocess.Popen[bytes]
    if kind == "http":
        processes.set(WORKRON_TOKEN=KEY)
        started = processes.start("worker", "--slots", "4", "--api", str(http.base_url))
    else:
        started = processes.worker(4)
    return started


def submit(http: httpx2.Client, command: str, **more: Any) -> str:
    answer = http.post("/jobs", json={"command": command, **more})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def is_now(moment: str) -> bool:
    return abs((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()) < 60


def test_a_worker_whose_clock_is_wrong_by_an_hour_does_everything_in_time(
    worker: "subprocess.Popen[bytes]", http: httpx2.Client, processes: Any
) -> None:
    began_s = time.monotonic()
    plain = submit(http, "true")
    long = submit(http, f"sleep {2.5 * LEASE_S}")
    over = submit(http, "sleep 60", timeout="500ms", max_attempts=1)
    again = submit(http, "test $WORKRON_ATTEMPT = 2")
    late = submit(http, "true", delay="1s")
    adding = {"name": "one", "argv": [sys.executable, "-c", ADD]}
    flow = http.post("/workflows", json={"name": "grows", "jobs": [adding]}).json()["id"]
    jobs = [http.get(f"/jobs/{one}", params={"wait": 20}).json() for one in (plain, long, over, again, late)]
    assert [(job["status"], job["reason"], job["attempts"]) for job in jobs] == [
        ("done", None, 1),
        ("done", None, 1),
        ("failed", "timeout", 1),
        ("done", None, 2),
        ("done", None, 1),
    ]
    wait_for(lambda: http.get(f"/workflows/{flow}").json()["counts"]["done"] == 2, "the job that was added")

    for job in jobs:
        assert all(is_now(job[name]) for name in ("created_at", "started_at", "finished_at"))
    (about,) = http.get("/workers").json()["data"]
    assert about["state"] == "active"
    assert is_now(about["last_heartbeat"])
    assert is_now(about["started_at"])
    assert "lease lost" not in processes.logs()
    assert time.monotonic() - began_s < 40
