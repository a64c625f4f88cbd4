"""`workron up` under load, its processes killed: no accepted job is missing, each ends, and each ends once."""

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from redis import Redis

from tests.chaos.load import WORKFLOW_ENDS
from tests.e2e.up import Up
from workron.doctor import Report
from workron.models import TERMINAL
from workron.redis.connection import Connection
from workron.redis.keys import Keys
from workron.store import Store

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

QUICK = {
    "WORKRON_LEASE": "2s",
    "WORKRON_REAP_EVERY": "0.2s",
    "WORKRON_RETRY_DELAY": "0.1s",
    "WORKRON_KILL_GRACE": "0.5s",
    "WORKRON_DRAIN_TIMEOUT": "1s",
    "WORKRON_LOG_FORMAT": "json",
}
STANDSTILL_S = 3.0
"""Longer than a process waits for an answer, and than a lease."""


class Load(threading.Thread):
    """Submits workflows all the time, to whatever API is there, and remembers what was accepted."""

    def __init__(self, up: Up, folder: Path) -> None:
        super().__init__(daemon=True)
        self.accepted: dict[str, str] = {}
        """How each accepted job has to end, by id."""
        self._up = up
        self._folder = folder
        self._stopping = threading.Event()

    def run(self) -> None:
        number = 0
        while not self._stopping.wait(0.15):
            number += 1
            try:
                answer = self._up.http.post("/workflows", json=self._workflow(f"{self.name}-{number}"))
            except (
                httpx2.HTTPError,
                RuntimeError,
            ):  # RuntimeError: the client was closed, the next one is not there yet
                continue
            if answer.status_code == 201:
                self.accepted |= {job["id"]: WORKFLOW_ENDS[job["name"]] for job in answer.json()["jobs"]}

    def _workflow(self, name: str) -> dict[str, Any]:
        ran = f"echo $WORKRON_JOB_ID $WORKRON_FENCE >> {self._folder}/ran"
        mark = self._folder / name

        def job(name: str, command: str, *parents: Any, max_attempts: int = 20) -> dict[str, Any]:
            command = f"{ran}; sleep 0.05; {command}"
            return {"name": name, "command": command, "depends_on": parents, "max_attempts": max_attempts}

        return {
            "name": name,
            "jobs": [
                job("flaky", f"test -e {mark} || {{ touch {mark}; echo not yet; exit 1; }}"),
                job("left", ":", "flaky"),
                job("right", ":", "flaky"),
                job("join", ":", "left", "right"),
                job("bad", "exit 3", max_attempts=2),
                job("mourner", ":", "bad"),
                job("heir", ":", "mourner"),
                job("handler", ":", {"job": "bad", "when": "failed"}),
            ],
        }

    def stop(self) -> None:
        self._stopping.set()
        self.join(60)
        assert not self.is_alive()


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    with Up(tmp_path, "--slots", "4", **QUICK) as up:
        up.start()
        yield up


def test_after_the_death_of_everything_the_next_start_brings_every_job_to_its_end(up: Up, tmp_path: Path) -> None:
    accepted: dict[str, str] = {}
    for _ in range(2):
        load = Load(up, tmp_path)
        load.start()
        wait_until_busy(up, load)
        up.kill_everything()
        load.stop()
        accepted |= load.accepted
        up.start()
    assert_all_ended_once(up, accepted, tmp_path)


def test_the_stack_heals_itself_after_the_death_of_any_one_of_its_processes(up: Up, tmp_path: Path) -> None:
    load = Load(up, tmp_path)
    load.start()
    for name in ("server", "api", "reaper", "worker", "guardian"):
        before = up.pids
        wait_until_busy(up, load)
        up.kill(name)
        up.wait_for_another(name, before[name])
        up.wait_for(lambda: is_healthy(up), f"health after the death of the {name}")
        changed = {other for other, pid in up.pids.items() if pid != before[other]}
        assert changed == ({"worker", "guardian"} if name == "worker" else {name})
    load.stop()
    assert_all_ended_once(up, load.accepted, tmp_path)


def test_calls_that_are_repeated_to_a_server_that_stood_still_count_once(up: Up, tmp_path: Path) -> None:
    load = Load(up, tmp_path)
    load.start()
    for _ in range(2):
        wait_until_busy(up, load)
        os.kill(up.pids["server"], signal.SIGSTOP)
        time.sleep(STANDSTILL_S)
        os.kill(up.pids["server"], signal.SIGCONT)
        up.wait_for(lambda: is_healthy(up), "health after the standstill")
    load.stop()
    assert "redis unavailable" in up.log_file.read_text()
    assert_all_ended_once(up, load.accepted, tmp_path)


def wait_until_busy(up: Up, load: Load) -> None:
    """Wait until more jobs have been accepted, and some wait, some run, and some have been done."""
    before = len(load.accepted)

    def is_busy() -> bool:
        counts = counts_of(up)
        return len(load.accepted) > before + 16 and all(counts[status] for status in ("blocked", "running", "done"))

    up.wait_for(is_busy, "load")


def is_healthy(up: Up) -> bool:
    """Whether all is well, and a job that is submitted now is run."""
    if up.http.get("/readyz").status_code != 200 or up.http.get("/health").json()["status"] != "ok":
        return False
    submitted = up.http.post("/jobs", json={"command": "true", "priority": 9})
    return submitted.status_code == 201 and wait_for_job(up, submitted.json()["id"]) == "done"


def wait_for_job(up: Up, job_id: str) -> str:
    status: str = up.http.get(f"/jobs/{job_id}", params={"wait": 20}).json()["status"]
    return status


def counts_of(up: Up) -> Counter[str]:
    return sum((Counter(queue["counts"]) for queue in up.http.get("/queues").json()["data"]), Counter())


def assert_all_ended_once(up: Up, accepted: dict[str, str], folder: Path) -> None:
    up.wait_for(lambda: TERMINAL.issuperset(counts_of(up)), "the end of all jobs")
    found = all_jobs(up)
    wrong = {job_id: (found.get(job_id), end) for job_id, end in accepted.items() if found.get(job_id) != end}
    assert not wrong, "how some jobs ended, and how they had to"
    assert set(found.values()) <= set(TERMINAL)  # what was stored without an answer, too
    assert counts_of(up) == Counter(found.values())

    times_ended = ends(up)
    assert {job_id: times_ended[job_id] for job_id in found if times_ended[job_id] != 1} == {}

    attempts = [line.split() for line in (folder / "ran").read_text().splitlines()]
    assert {job_id for job_id, end in accepted.items() if end == "done"} <= {job_id for job_id, _ in attempts}
    fences = [fence for _, fence in attempts]
    assert len(set(fences)) == len(fences)
    assert asyncio.run(examine(up.redis_url)).faults == ()


async def examine(url: str) -> Report:
    async with Store(Connection.open(url)) as store:
        return await store.doctor.examine()


def all_jobs(up: Up) -> dict[str, str]:
    """Return the status of every job that is listed."""
    found: dict[str, str] = {}
    cursor: dict[str, Any] = {}
    while True:
        page = up.http.get("/jobs", params={"limit": 1000, **cursor}).json()
        found |= {job["id"]: job["status"] for job in page["data"]}
        if page["next_cursor"] is None:
            return found
        cursor = {"cursor": page["next_cursor"]}


def ends(up: Up) -> Counter[str]:
    """Return how often each job ended, by the events, which tell every transition."""
    events = Keys("default").events
    with Redis.from_url(up.redis_url, decode_responses=True) as redis:
        stream: Any = redis.xinfo_stream(events)
        assert stream["entries-added"] == stream["length"], "the first events are gone already"
        entries: Any = redis.xrange(events)
    ended = (ids.split() for _, entry in entries for status, ids in entry.items() if status in TERMINAL)
    return Counter(job_id for ids in ended for job_id in ids)
