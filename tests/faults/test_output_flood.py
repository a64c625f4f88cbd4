"""Jobs flood their output: the worker's memory and Redis' stay as they are, what is left out is recorded, others go on.

`WORKRON_FLOOD=10000000000` makes it 10 GB, which takes a quarter of a minute.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest
from redis import Redis

from tests.e2e.up import Up

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

FLOOD: Final = int(os.environ.get("WORKRON_FLOOD", "2000000000"))
SLOWEST: Final = 30_000_000
"""Bytes in a second of each of two floods, on a busy machine; ten times as many were measured."""
KEPT: Final = 2 * 128 * 1024
MIB: Final = 1024 * 1024


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    settings = {"WORKRON_LEASE": "3s", "WORKRON_REAP_EVERY": "0.2s", "WORKRON_LOG_FORMAT": "json"}
    with Up(tmp_path, "--slots", "4", **settings) as up:
        up.start()
        yield up


class Memory:
    """How much a process has used at most since the last look."""

    def __init__(self, pid: int) -> None:
        self._process = Path(f"/proc/{pid}")
        self.before = self._kb("VmRSS")
        with suppress(OSError):  # not in every kernel; then VmHWM has the time before in it
            (self._process / "clear_refs").write_text("5")

    def grown_by(self) -> int:
        return (self._kb("VmHWM") - self.before) * 1024

    def _kb(self, field: str) -> int:
        lines = (self._process / "status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(f"{field}:")).split()[1])


def submit(up: Up, command: str) -> str:
    return str(up.http.post("/jobs", json={"command": command, "max_attempts": 1}).json()["id"])


def ended(up: Up, job_id: str) -> Any:
    while (job := up.http.get(f"/jobs/{job_id}", params={"wait": 20}).json())["finished_at"] is None:
        assert job["status"] in ("pending", "running")
    return job


def test_floods_of_output_are_cut_and_cost_no_memory_no_lease_and_no_others_time(up: Up) -> None:
    ended(up, submit(up, "head -c 10000000 /dev/zero"))  # now its buffers are there
    memory = Memory(up.pids["worker"])
    with Redis.from_url(up.redis_url) as redis:
        used = redis.info("memory")["used_memory"]
        share = FLOOD // 2
        lines = [submit(up, f"yes 'a line of the flood' | head -c {share - 4}; echo end") for _ in range(2)]
        others = [ended(up, submit(up, "echo others")) for _ in range(10)]
        jobs = [ended(up, job_id) for job_id in lines]
        stored = redis.info("memory")["used_memory"] - used
    assert {(job["status"], job["attempts"]) for job in [*jobs, *others]} == {("done", 1)}
    assert memory.grown_by() < 25 * MIB
    assert stored < 8 * MIB
    for job in jobs:
        output = up.http.get(f"/jobs/{job['id']}/output")
        assert output.headers["x-workron-output-total"] == str(share)
        assert output.content.startswith(b"a line of the flood\n" * 100)
        assert f"{share - KEPT:,} bytes cut".encode() in output.content
        assert output.content.endswith(b"end\n")
        assert share / seconds_of(job) > SLOWEST
    assert max(map(seconds_of, others)) < 5


def seconds_of(job: Any) -> float:
    started, finished = (datetime.fromisoformat(job[name]) for name in ("started_at", "finished_at"))
    return (finished - started).total_seconds()
