"""Somebody else runs a script that does not end: until it is killed nothing goes on, and nothing is lost by that."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis, ResponseError
from redis.exceptions import RedisError

from tests.e2e.up import Up
from tests.local.probe import wait_for
from tests.servers import QUICK
from workron.errors import StoreUnavailable
from workron.redis.connection import Connection
from workron.redis.server_info import server_info
from workron.store import Store

LEASE_S = 6
BLOCKED_S = 2.5
"""Long enough for calls to be given up, for two passes to be missed, and for heartbeats; shorter than the lease."""


@contextmanager
def endless_script(url: str) -> Iterator[Redis]:
    """Have the server busy with a script of somebody else; killed at the end."""
    redis = Redis.from_url(url, socket_timeout=30)
    redis.config_set("busy-reply-threshold", 300)
    ended: list[str] = []

    def run() -> None:
        with Redis.from_url(url, socket_timeout=60) as other:
            try:
                other.eval("while true do end", 0)
            except ResponseError as error:
                ended.append(str(error))

    def is_busy() -> bool:
        try:
            return not redis.ping()
        except RedisError as error:
            return "BUSY" in str(error) or "busy" in str(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_for(is_busy, "the server to be busy")
    try:
        yield redis
    finally:
        redis.script_kill()
        thread.join()
        redis.config_set("busy-reply-threshold", 5000)
        redis.close()
    assert "killed" in ended[0]


@pytest.mark.chaos
def test_an_endless_script_of_another_program_holds_up_everything_and_costs_nothing(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    settings = {"WORKRON_LEASE": f"{LEASE_S}s", "WORKRON_REAP_EVERY": "0.2s", "WORKRON_LOG_FORMAT": "json"}
    with Up(tmp_path, "--slots", "4", **settings) as up:
        up.start()
        before = up.pids
        jobs = [{"command": f"echo $WORKRON_JOB_ID >> {ran}; sleep {0.1 * (at % 10)}; echo x"} for at in range(40)]
        job_ids = [job["id"] for job in up.http.post("/jobs/bulk", json={"jobs": jobs}).json()["data"]]
        up.wait_for(ran.exists, "the first to run")
        with endless_script(up.redis_url):
            refused = up.http.post("/jobs", json={"command": "true"})
            assert (refused.status_code, refused.json()["type"]) == (503, "/problems/store-unavailable")
            assert "BUSY" in refused.json()["detail"]
            assert int(refused.headers["retry-after"]) >= 1
            assert up.http.get("/readyz").status_code == 503
            up.wait_for(lambda: outlasted(up) == {"api", "reaper", "worker"}, "that all have noticed")
            threading.Event().wait(BLOCKED_S)
        ended: list[Any] = [up.http.get(f"/jobs/{one}", params={"wait": 20}).json() for one in job_ids]
        assert Counter((job["status"], job["attempts"]) for job in ended) == {("done", 1): 40}
        assert sorted(ran.read_text().split()) == sorted(job_ids)
        assert up.pids == before
        assert not up.entries("lease expired, job reclaimed")
        assert not [entry for entry in up.entries("redis unavailable, retrying") if "damaged" in entry["error"]]


def outlasted(up: Up) -> set[str]:
    return {entry["process"] for entry in up.entries("redis unavailable, retrying")}


async def test_a_busy_server_is_away_and_not_damaged(url: str, namespace: str) -> None:
    """Also for calls that read several keys at once, each of which may be damaged by itself."""
    connection = Connection.open(url, budget_s=0.5)
    store = Store(connection, namespace=namespace, policy=QUICK)
    with endless_script(url):
        for ask in (store.queues, lambda: store.schedules.due(0, 10), lambda: server_info(connection)):
            with pytest.raises(StoreUnavailable) as away:
                await ask()
            assert type(away.value) is StoreUnavailable, away.value
    await store.aclose()
