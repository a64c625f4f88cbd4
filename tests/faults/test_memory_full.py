"""Redis reaches its `maxmemory`: submissions are refused for a while, running work finishes, nobody has to help."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from tests.e2e.up import Up

pytestmark = [pytest.mark.chaos]

SETTINGS = {"WORKRON_LOG_FORMAT": "json", "WORKRON_REAP_EVERY": "0.2s"}
MIB = 1024 * 1024
LATER = {"command": "true", "queue": "later", "env": {"PAYLOAD": "x" * 100_000}}
HEAD = 128 * 1024


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    with Up(tmp_path, "--slots", "2", **SETTINGS) as up:
        up.start()
        yield up


@pytest.fixture
def redis(up: Up) -> Iterator[Any]:
    with Redis.from_url(up.redis_url) as client:
        yield client


def run(up: Up, job_id: str) -> Any:
    return up.http.get(f"/jobs/{job_id}", params={"wait": 20}).json()


def submit(up: Up, command: str, **more: Any) -> str:
    answer = up.http.post("/jobs", json={"command": command, **more})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def test_submissions_wait_until_there_is_memory_again_and_running_work_finishes(
    up: Up, redis: Any, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    before = up.pids
    running = submit(up, f"echo begun; while ! test -e {go}; do sleep 0.05; done; echo finished")
    up.wait_for(lambda: up.http.get(f"/jobs/{running}/output").content == b"begun\n", "its first output")
    followed = submit(up, "true", depends_on=[running])
    redis.config_set("maxmemory", 16 * MIB)
    stored = list(stored_until_full(up))
    assert len(stored) > 50

    redis.config_set("maxmemory", 8 * MIB)  # as if something else had taken the rest
    refused = up.http.post("/jobs", json={"command": "true"})
    assert (refused.status_code, refused.json()["type"]) == (503, "/problems/store-full")
    assert int(refused.headers["retry-after"]) >= 1
    go.touch()
    assert [run(up, one)["status"] for one in (running, followed)] == ["done", "done"]

    redis.config_set("maxmemory", 16 * MIB)
    for job_id in stored[: len(stored) // 2]:
        assert up.http.post(f"/jobs/{job_id}/cancel").status_code == 200
    up.wait_for(lambda: up.http.post("/jobs", json={"command": "true"}).status_code == 201, "a submission")
    assert set(waiting_in(up, "later")) == set(stored[len(stored) // 2 :])
    assert up.pids == before
    # Reading works, only the room is missing: that is no outage.
    assert not up.entries("redis unavailable, retrying")


def waiting_in(up: Up, queue: str) -> Iterator[str]:
    """Yield the jobs that wait in a queue, page by page."""
    asked: dict[str, Any] = {"queue": queue, "status": "pending", "limit": 1000}
    while True:
        page = up.http.get("/jobs", params=asked).json()
        yield from (job["id"] for job in page["data"])
        if not page["next_cursor"]:
            return
        asked["cursor"] = page["next_cursor"]


def stored_until_full(up: Up) -> Iterator[str]:
    """Submit large jobs until one is refused for want of memory; yields those that are stored."""
    for _ in range(1_000):
        answer = up.http.post("/jobs", json=LATER)
        if answer.status_code != 201:
            assert (answer.status_code, answer.json()["type"]) == (503, "/problems/store-full")
            return
        yield answer.json()["id"]
    raise AssertionError("the memory is not full")


def test_output_that_a_full_redis_did_not_take_is_seen_to_be_missing(up: Up, redis: Any, tmp_path: Path) -> None:
    go = tmp_path / "go"
    lines = "head -c 99999 /dev/zero | tr '\\0' x; echo"
    job_id = submit(up, f"{lines}; {lines}; while ! test -e {go}; do sleep 0.05; done; {lines}; echo end")
    up.wait_for(lambda: len(up.http.get(f"/jobs/{job_id}/output").content) == 200_000, "its first output")
    redis.config_set("maxmemory", MIB)
    up.wait_for(lambda: redis.hget("workron:{default}:meta", "full"), "that it is noticed")
    go.touch()
    assert run(up, job_id)["status"] == "done"
    output = up.http.get(f"/jobs/{job_id}/output")
    assert output.headers["x-workron-output-total"] == "300004"
    assert output.content[:HEAD].replace(b"\n", b"x") == b"x" * HEAD
    assert output.content[HEAD:].decode() == f"\n… {300_004 - HEAD:,} bytes cut …\n"
