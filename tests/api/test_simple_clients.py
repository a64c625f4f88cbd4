"""The simplest workers that exist: no fences, empty bodies, a registration with fields of their own."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel, ConfigDict

from api.app import create_app
from tests.api.test_reports import refused
from tests.builders import after, claim, new_job, reap_all, submit
from tests.servers import Bench
from workron.models import Status
from workron.settings import Settings
from workron.store import Store

REGISTRATION: dict[str, Any] = {
    "id": "gpu-1",
    "exec_addr": "10.0.0.7:9000",
    "resources": {"vram_mb": 24_000, "memory_mb": 64_000},
    "tags": ["gpu", "fast"],
    "status": "",
    "last_heartbeat": "0001-01-01T00:00:00Z",
    "registered_at": "0001-01-01T00:00:00Z",
}


class Strict(BaseModel):
    """How a statically typed client sees a job: what it does not know is ignored, the rest must fit."""

    model_config = ConfigDict(strict=True)

    id: str
    command: str
    env: dict[str, str]
    depends_on: list[str]
    status: str
    attempts: int
    priority: int
    created_at: str


async def asking(store: Store, folder: Path, **settings: Any) -> AsyncIterator[httpx2.AsyncClient]:
    app = create_app(store, Settings(data_dir=folder, no_auth=True, **settings), None)
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client
    await app.state.context.aclose()


@pytest.fixture
async def plain(store: Store, tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    async for client in asking(store, tmp_path):
        yield client


@pytest.fixture
async def never(store: Store, tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    async for client in asking(store, tmp_path, unfenced="never"):
        yield client


@pytest.fixture
async def always(store: Store, tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    async for client in asking(store, tmp_path, unfenced="always"):
        yield client


async def next_job(client: httpx2.AsyncClient, worker: str = "w1") -> dict[str, Any]:
    response = await client.get(f"/jobs/next?worker_id={worker}")
    assert response.status_code == 200
    document: dict[str, Any] = response.json()
    return document


async def test_a_job_is_fetched_kept_alive_and_done_with_empty_bodies(plain: httpx2.AsyncClient, store: Store) -> None:
    assert (await plain.get("/jobs/next?worker_id=w1")).status_code == 204
    (job_id,) = await submit(store, new_job(command="echo hello", env={"A": "1"}))
    job = Strict.model_validate(await next_job(plain))
    assert (job.id, job.command, job.env, job.depends_on) == (job_id, "echo hello", {"A": "1"}, [])
    for what in ("heartbeat", "heartbeat", "done", "done"):
        assert (await plain.post(f"/jobs/{job_id}/{what}")).status_code == 200
    assert (await store.job(job_id)).status is Status.DONE


async def test_dependencies_are_plain_ids(plain: httpx2.AsyncClient, store: Store) -> None:
    (parent,) = await submit(store, new_job())
    (child,) = await submit(store, new_job(depends_on=after(parent)))
    await next_job(plain)
    await plain.post(f"/jobs/{parent}/done")
    job = Strict.model_validate(await next_job(plain))
    assert (job.id, job.depends_on) == (child, [parent])


@pytest.mark.parametrize("content_type", [None, "application/json", "text/plain", "application/x-www-form-urlencoded"])
async def test_an_empty_body_may_be_of_any_type(
    plain: httpx2.AsyncClient, store: Store, content_type: str | None
) -> None:
    (job_id,) = await submit(store, new_job(max_attempts=1))
    await next_job(plain)
    headers = {} if content_type is None else {"content-type": content_type}
    for what in ("heartbeat", "fail"):
        assert (await plain.post(f"/jobs/{job_id}/{what}", headers=headers)).status_code == 200
    assert (await store.job(job_id)).status is Status.FAILED


async def test_a_job_that_failed_and_is_tried_again_can_be_reported_again(
    plain: httpx2.AsyncClient, store: Store
) -> None:
    (job_id,) = await submit(store, new_job(max_attempts=2))
    await next_job(plain)
    assert (await plain.post(f"/jobs/{job_id}/fail")).json()["status"] == "scheduled"
    assert (await plain.post(f"/jobs/{job_id}/fail")).json()["verdict"] == "recorded"
    (again,) = await claim(store, wait=True)
    assert again.attempt == 2
    assert (await plain.post(f"/jobs/{job_id}/done")).json() == {"id": job_id, "status": "done", "verdict": "accepted"}


@pytest.mark.parametrize("what", ["heartbeat", "done", "fail", "release"])
@pytest.mark.parametrize("how", ["released", "lost"])
async def test_a_report_without_a_fence_is_refused_where_it_may_be_anothers(
    plain: httpx2.AsyncClient, store: Store, bench: Bench, how: str, what: str
) -> None:
    """Nobody can tell whether it comes from the worker that runs the job or from the one that lost it."""
    (job_id,) = await submit(store, new_job())
    first = await next_job(plain)
    if how == "released":
        await store.attempts.release([(job_id, first["fence"])])
    else:
        await reap_all(store)
    second = await next_job(plain, "w2")
    refused(await plain.post(f"/jobs/{job_id}/{what}"), 409, "lease-lost")
    assert (await store.job(job_id)).status is Status.RUNNING
    response = await plain.post(f"/jobs/{job_id}/done", json={"fence": second["fence"]})
    assert response.json()["verdict"] == "accepted"


async def test_a_new_run_begins_with_a_clean_record(plain: httpx2.AsyncClient, store: Store) -> None:
    (job_id,) = await submit(store, new_job(max_attempts=1))
    await next_job(plain)
    await reap_all(store)
    assert (await store.job(job_id)).status is Status.FAILED
    refused(await plain.post(f"/jobs/{job_id}/done"), 409, "not-running")
    await store.retry(job_id)
    await next_job(plain)
    assert (await plain.post(f"/jobs/{job_id}/done")).status_code == 200


async def test_where_fences_are_demanded_a_report_without_is_not_valid(never: httpx2.AsyncClient, store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    job = await next_job(never)
    for what in ("heartbeat", "done", "fail", "release"):
        refused(await never.post(f"/jobs/{job_id}/{what}"), 422, "validation")
    assert (await never.post(f"/jobs/{job_id}/done", json={"fence": job["fence"]})).status_code == 200


async def test_where_everything_is_taken_the_job_is_marked(
    always: httpx2.AsyncClient, store: Store, bench: Bench
) -> None:
    (job_id,) = await submit(store, new_job())
    first = await next_job(always)
    await store.attempts.release([(job_id, first["fence"])])
    await next_job(always, "w2")
    assert (await always.post(f"/jobs/{job_id}/done")).json()["verdict"] == "accepted"
    assert await bench.client.hget(bench.keys.job(job_id), "unfenced") == b"1"


async def test_a_worker_registers_and_keeps_itself_known(plain: httpx2.AsyncClient) -> None:
    assert (await plain.post("/workers/gpu-1/heartbeat")).status_code == 404
    response = await plain.post("/workers/register", json=REGISTRATION)
    assert response.status_code == 201
    assert (await plain.post("/workers/gpu-1/heartbeat")).status_code == 200
    (worker,) = (await plain.get("/workers")).json()["data"]
    assert (worker["id"], worker["exec_addr"], worker["tags"]) == ("gpu-1", "10.0.0.7:9000", ["gpu", "fast"])
    assert worker["resources"] == {"vram_mb": 24_000, "memory_mb": 64_000}


@pytest.mark.parametrize("extra", [{"tags": None}, {"resources": None}, {"resources": {}}, {"anything": [1]}])
async def test_a_registration_may_leave_out_or_add_what_it_likes(
    plain: httpx2.AsyncClient, extra: dict[str, Any]
) -> None:
    assert (await plain.post("/workers/register", json=REGISTRATION | extra)).status_code == 201
    assert (await plain.post("/workers/register", json={"id": "host:1"})).status_code == 201
    assert (await plain.post("/workers/host:1/heartbeat")).status_code == 200


@pytest.mark.parametrize("worker_id", ["", "a b", "w:claim", 7])
async def test_a_worker_needs_a_usable_name(plain: httpx2.AsyncClient, worker_id: object) -> None:
    refused(await plain.post("/workers/register", json={"id": worker_id}), 422, "validation")
