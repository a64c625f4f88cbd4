"""A full queue is told to the submitter, with the time to come back."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from api import schemas
from api.app import create_app
from tests.api.live import AUTHORIZATION, START, environment
from tests.builders import claim
from tests.log_lines import captured
from workron.settings import Settings
from workron.store import Store

JOB = {"command": "true"}


async def limit(client: httpx2.AsyncClient, most: int | None, queue: str = "default") -> dict[str, Any]:
    answer = await client.patch(f"/queues/{queue}", json={"max_pending": most})
    assert answer.status_code == 200
    schemas.Queue.model_validate(answer.json())
    document: dict[str, Any] = answer.json()
    return document


async def test_a_limit_is_set_shown_and_taken_away(client: httpx2.AsyncClient) -> None:
    assert (await limit(client, 7, "reports"))["max_pending"] == 7
    queues = (await client.get("/queues")).json()
    schemas.QueueList.model_validate(queues)
    assert [(queue["name"], queue["max_pending"]) for queue in queues["data"]] == [("reports", 7)]
    assert (await limit(client, None, "reports"))["max_pending"] is None
    assert (await client.get("/queues")).json()["data"] == []


@pytest.mark.parametrize(
    "body", [{}, {"max_pending": -1}, {"max_pending": "7"}, {"max_pending": 1.5}, {"max_pending": 1, "x": 1}, []]
)
async def test_a_limit_that_is_none_is_refused(client: httpx2.AsyncClient, body: object) -> None:
    assert (await client.patch("/queues/default", json=body)).status_code == 422


async def test_a_queue_with_a_wrong_name_is_refused(client: httpx2.AsyncClient) -> None:
    assert (await client.patch("/queues/a%20b", json={"max_pending": 1})).status_code == 422


async def test_a_full_queue_is_a_503_that_names_queue_limit_and_waiting_jobs(client: httpx2.AsyncClient) -> None:
    await limit(client, 1)
    assert (await client.post("/jobs", json=JOB)).status_code == 201
    answer = await client.post("/jobs", json=JOB)
    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (503, "/problems/queue-full")
    assert [problem[name] for name in ("queue", "limit", "waiting", "size")] == ["default", 1, 1, 1]
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    assert len((await client.get("/jobs")).json()["data"]) == 1


@pytest.mark.parametrize("size", [3, 1_000])
@pytest.mark.parametrize("path", ["/jobs/bulk", "/workflows"])
async def test_many_jobs_are_stored_whole_or_not_at_all(client: httpx2.AsyncClient, path: str, size: int) -> None:
    await limit(client, size)
    await client.post("/jobs", json=JOB)
    answer = await client.post(path, json={"jobs": [JOB] * size})
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/queue-full")
    assert len((await client.get("/jobs")).json()["data"]) == 1
    assert (await client.post(path, json={"jobs": [JOB] * (size - 1)})).status_code == 201


@pytest.mark.parametrize(
    ("path", "body"), [("/jobs", JOB), ("/jobs/bulk", {"jobs": [JOB]}), ("/workflows", {"jobs": [JOB]})]
)
async def test_the_repeat_of_a_stored_submission_is_answered_by_a_full_queue(
    client: httpx2.AsyncClient, path: str, body: dict[str, Any]
) -> None:
    await limit(client, 1)
    first = await client.post(path, json=body, headers={"idempotency-key": "k"})
    again = await client.post(path, json=body, headers={"idempotency-key": "k"})
    other = await client.post(path, json=body, headers={"idempotency-key": "l"})
    assert [answer.status_code for answer in (first, again, other)] == [201, 200, 503]


async def test_a_refused_key_can_be_used_when_there_is_room(client: httpx2.AsyncClient, store: Store) -> None:
    await limit(client, 1)
    await client.post("/jobs", json=JOB)
    refused = await client.post("/jobs", json=JOB, headers={"idempotency-key": "k"})
    await claim(store)
    stored = await client.post("/jobs", json=JOB, headers={"idempotency-key": "k"})
    assert (refused.status_code, stored.status_code) == (503, 201)


async def test_a_retry_is_not_refused_by_a_full_queue(client: httpx2.AsyncClient) -> None:
    await limit(client, 1)
    job_id = (await client.post("/jobs", json=JOB)).json()["id"]
    await client.post(f"/jobs/{job_id}/cancel")
    await client.post("/jobs", json=JOB)
    assert (await client.post(f"/jobs/{job_id}/retry")).status_code == 200


async def test_a_full_queue_is_no_outage(client: httpx2.AsyncClient) -> None:
    await limit(client, 0)
    with captured() as logs:
        assert (await client.post("/jobs", json=JOB)).status_code == 503
    assert logs == []


# --- the limits that settings name ------------------------------------------------------------------------------------


async def test_a_limit_that_one_server_was_started_with_holds_for_all(
    redis: Any, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    port, env = environment(redis.url, "default", tmp_path)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", START, env=env | {"WORKRON_MAX_PENDING": "1"}, cwd=tmp_path, stderr=subprocess.DEVNULL
    )
    try:
        settings = Settings(data_dir=tmp_path, redis=redis.url)
        async with Store.connect(settings) as store:
            app = create_app(store, settings, None)
            async with (
                aclosing(app.state.context),
                httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as client,
                httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=AUTHORIZATION) as started,
            ):
                await wait_until(lambda: _answers(started))
                assert (await started.post("/jobs", json=JOB)).status_code == 201
                answers = [await one.post("/jobs", json=JOB) for one in (client, started)]
                assert [answer.status_code for answer in answers] == [503, 503]
                assert (await client.get("/queues")).json()["data"][0]["max_pending"] == 1
    finally:
        process.terminate()
        await process.wait()


async def _answers(client: httpx2.AsyncClient) -> bool:
    try:
        return (await client.get("/livez")).is_success
    except httpx2.TransportError:
        return False
