"""Queues, workers, and how the system says that it is well, or is not."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from redis.asyncio import Redis

from api import schemas
from api.app import create_app
from tests.builders import claim
from tests.servers import Bench, start_server
from workron.local.valkey import server_binary
from workron.settings import Settings
from workron.store import Store


async def health(client: httpx2.AsyncClient) -> dict[str, Any]:
    response = await client.get("/health")
    assert response.status_code == 200
    answer: dict[str, Any] = response.json()
    schemas.Health.model_validate(answer)
    return answer


async def test_queues_are_listed_with_the_number_of_jobs_in_each_status(client: httpx2.AsyncClient) -> None:
    for queue in ("a", "a", "b"):
        await client.post("/jobs", json={"command": "x", "queue": queue})
    answer = (await client.get("/queues")).json()
    schemas.QueueList.model_validate(answer)
    assert {queue["name"]: queue["counts"]["pending"] for queue in answer["data"]} == {"a": 2, "b": 1}


async def test_health_is_degraded_until_a_reaper_has_run(client: httpx2.AsyncClient, store: Store) -> None:
    before = await health(client)
    assert (before["status"], before["reaper"]["last_pass_age"]) == ("degraded", None)
    assert "no reaper" in before["warnings"][0]
    await store.maintenance.reap()
    after = await health(client)
    assert 0 <= after["reaper"]["last_pass_age"] < 10
    assert not any("reaper" in warning for warning in after["warnings"])


async def test_health_counts_what_runs_and_what_is_due(client: httpx2.AsyncClient, store: Store) -> None:
    await client.post("/jobs", json={"command": "x"})
    await client.post("/jobs", json={"command": "x", "delay": 60})
    await claim(store)
    answer = await health(client)
    assert (answer["running"], answer["due"]) == (1, 1)


async def test_health_tells_of_a_rollback_and_of_damaged_jobs(
    client: httpx2.AsyncClient, store: Store, bench: Bench
) -> None:
    assert (await health(client))["history"] == {"rollbacks": 0, "rolled_back_at": None}
    await store.maintenance.reap()
    await bench.client.hset(bench.keys.meta, "passes", "0")
    await store.maintenance.reap()
    await bench.client.sadd(bench.keys.quarantine, "one")
    answer = await health(client)
    assert (answer["history"]["rollbacks"], answer["quarantined"]) == (1, 1)
    told = " ".join(answer["warnings"])
    assert "history was rolled back" in told
    assert "keys of 1 job are damaged" in told


@pytest.mark.parametrize("bench", ["valkey", "redis"], indirect=True)
async def test_health_names_the_server_and_how_durable_it_is(client: httpx2.AsyncClient) -> None:
    answer = await health(client)
    assert answer["server"]["product"] in {"Redis", "Valkey"}
    assert answer["server"]["version"][0].isdigit()
    assert (answer["server"]["appendonly"], answer["server"]["appendfsync"]) == (False, "everysec")
    assert any("append-only" in warning for warning in answer["warnings"])


async def test_a_silent_reaper_is_reported(client: httpx2.AsyncClient, store: Store, bench: Any) -> None:
    await store.maintenance.reap()
    await bench.client.hset(bench.keys.meta, "last_pass", int(time.time() * 1000) - 60_000)
    answer = await health(client)
    assert answer["status"] == "degraded"
    assert any("no reaper for 6" in warning for warning in answer["warnings"])


async def test_the_api_is_ready_while_the_store_answers(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/readyz")).json() == {"status": "ok"}


@pytest.mark.parametrize("bench", ["fake"], indirect=True)
async def test_a_nearly_full_disk_of_an_embedded_server_makes_the_api_unready(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    gib = 1024**3
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=500 * gib, free=gib - 1))
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/store-full")
    assert (await client.get("/livez")).status_code == 200
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=2 * gib, free=gib // 2))
    assert (await client.get("/readyz")).status_code == 200


@pytest.fixture
def doomed(tmp_path: Path) -> Iterator[Any]:
    """A server of its own, to be killed."""
    process = start_server(server_binary(), tmp_path)
    yield SimpleNamespace(process=process, url=f"unix://{tmp_path / 'redis.sock'}")
    process.kill()
    process.wait(10)


@pytest.mark.parametrize(
    ("setting", "value", "warning", "ready"),
    [
        (
            "min-replicas-to-write",
            1,
            "no job can be accepted, started or ended: Redis refuses writes: NOREP",
            False,
        ),
        ("maxmemory", 1, "new jobs are refused: Redis has no memory left", True),
    ],
)
async def test_a_redis_that_refuses_writes_is_reported_at_once_and_no_reaper_is_blamed(
    doomed: Any, tmp_path: Path, setting: str, value: int, warning: str, ready: bool
) -> None:
    settings = Settings(data_dir=tmp_path, redis=doomed.url)
    async with Store.connect(settings) as store, Redis.from_url(doomed.url) as redis:
        await store.check()
        await store.maintenance.reap()
        await redis.hset(store.keys.meta, "last_pass", int(time.time() * 1000) - (0 if ready else 60_000))
        transport = httpx2.ASGITransport(create_app(store, settings, None))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            before = (await redis.config_get(setting))[setting]
            await redis.config_set(setting, value)
            answer = await health(client)
            assert answer["status"] == "degraded"
            assert answer["warnings"][0].startswith(warning)
            assert not any("no reaper" in told for told in answer["warnings"])
            assert (await client.get("/readyz")).status_code == (200 if ready else 503)
            await redis.config_set(setting, before)
            assert (await client.get("/readyz")).status_code == 200
            assert not any(warning in told for told in (await health(client))["warnings"])


async def test_a_rebuild_is_reported_and_no_reaper_is_blamed(
    client: httpx2.AsyncClient, store: Store, bench: Any
) -> None:
    await store.maintenance.reap()
    now_ms = int(time.time() * 1000)
    await bench.client.hset(bench.keys.meta, "last_pass", now_ms - 60_000)
    await bench.client.hset(bench.keys.meta, "rebuilding_until", now_ms + 60_000)
    answer = await health(client)
    assert answer["status"] == "degraded"
    assert "all other calls wait" in answer["warnings"][0]
    assert not any("no reaper" in told for told in answer["warnings"])


async def test_without_its_store_the_api_lives_is_not_ready_and_says_when_to_come_back(
    doomed: Any, tmp_path: Path
) -> None:
    settings = Settings(data_dir=tmp_path, redis=doomed.url)
    async with Store.connect(settings) as store:
        transport = httpx2.ASGITransport(create_app(store, settings, None))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert (await client.get("/readyz")).status_code == 200
            doomed.process.kill()
            doomed.process.wait(10)
            began_s = time.monotonic()
            ready = await client.get("/readyz")
            assert time.monotonic() - began_s < 1.9
            submitted = await client.post("/jobs", json={"command": "x"})
            for answer in (ready, submitted):
                assert (answer.status_code, answer.json()["type"]) == (503, "/problems/store-unavailable")
                assert int(answer.headers["retry-after"]) >= 1
            assert (await client.get("/livez")).status_code == 200
