"""Changing queues over HTTP."""

from typing import Any

import httpx2
import pytest

from tests.builders import claim, jobs
from workron.store import Store


async def test_a_queue_is_paused_and_resumed(client: httpx2.AsyncClient, store: Store) -> None:
    paused = await client.post("/queues/default/pause")
    assert (paused.status_code, paused.json()["paused"]) == (200, True)
    await store.submit(jobs(2))
    assert await claim(store) == []
    assert (await client.get("/queues")).json()["data"][0]["paused"]
    assert not (await client.post("/queues/default/resume")).json()["paused"]
    assert len(await claim(store, limit=5)) == 2


async def test_what_a_change_leaves_out_stays(client: httpx2.AsyncClient) -> None:
    change: dict[str, Any] = {"max_running": 4, "rate": {"jobs": 10, "per": 1.5}}
    queue = (await client.patch("/queues/q", json=change)).json()
    assert (queue["max_running"], queue["rate"], queue["max_pending"]) == (4, {"jobs": 10, "per": 1.5}, None)
    queue = (await client.patch("/queues/q", json={"max_pending": 7})).json()
    assert (queue["max_running"], queue["max_pending"]) == (4, 7)
    queue = (await client.patch("/queues/q", json={"max_running": None, "rate": None})).json()
    assert (queue["max_running"], queue["rate"], queue["max_pending"]) == (None, None, 7)


@pytest.mark.parametrize(
    "change",
    [{}, {"max_running": 0}, {"rate": {"jobs": 0, "per": 1}}, {"rate": {"jobs": 1, "per": 0}}, {"rate": {"jobs": 1}}],
)
async def test_a_change_that_is_not_valid_is_refused(client: httpx2.AsyncClient, change: dict[str, Any]) -> None:
    assert (await client.patch("/queues/q", json=change)).status_code == 422
    assert (await client.get("/queues")).json()["data"] == []


async def test_a_purge_tells_how_many(client: httpx2.AsyncClient, store: Store) -> None:
    await store.submit(jobs(120))
    assert (await client.post("/queues/default/purge")).json() == {"cancelled": 120, "more": False}


async def test_only_a_queue_without_jobs_is_deleted(client: httpx2.AsyncClient, store: Store) -> None:
    await client.post("/queues/empty/pause")
    assert (await client.delete("/queues/empty")).status_code == 204
    assert (await client.delete("/queues/empty")).status_code == 404
    await store.submit(jobs(1))
    refused = await client.delete("/queues/default")
    assert (refused.status_code, refused.json()["detail"]) == (409, "queue default has 1 job, including ended ones")
