"""Workers over HTTP: listed, looked at, drained, forgotten."""

from dataclasses import replace

import httpx2
import pytest

from api import schemas
from workron.models import WorkerInfo
from workron.models.workers import Drain
from workron.store import Store
from workron.store.attempts import Attempts

INFO = WorkerInfo("host-1-Ab3dEf", "host-1", 4711, ("default",), 4, 1, 1_700_000_000_000, "0.1.0", ("job-1",))
PATH = f"/workers/{INFO.id}"


@pytest.fixture
async def client(client: httpx2.AsyncClient, store: Store) -> httpx2.AsyncClient:
    """A client of an API that has one worker."""
    await store.attempts.heartbeat(INFO, [])
    return client


async def test_workers_are_listed_with_all_that_is_known_of_them(client: httpx2.AsyncClient) -> None:
    answer = (await client.get("/workers")).json()
    schemas.WorkerList.model_validate(answer)
    [worker] = answer["data"]
    beat = worker.pop("last_heartbeat")
    assert beat == worker["started_at"], "its first heartbeat: by its own clock it has started years before"
    assert worker == {
        "id": INFO.id,
        "host": "host-1",
        "pid": 4711,
        "version": "0.1.0",
        "queues": ["default"],
        "slots": 4,
        "running": 1,
        "jobs": ["job-1"],
        "started_at": beat,
        "state": "active",
        "exec_addr": None,
        "resources": {},
        "tags": [],
    }
    assert (await client.get(PATH)).json() == {**worker, "last_heartbeat": beat}


async def test_a_list_of_workers_goes_on_behind_its_cursor(client: httpx2.AsyncClient, store: Store) -> None:
    await store.attempts.heartbeat(replace(INFO, id="host-2-000000"), [])
    first = (await client.get("/workers", params={"limit": 1})).json()
    second = (await client.get("/workers", params={"limit": 1, "cursor": first["next_cursor"]})).json()
    assert [worker["id"] for page in (first, second) for worker in page["data"]] == [INFO.id, "host-2-000000"]
    assert second["next_cursor"] is None


@pytest.mark.parametrize(
    ("body", "wish"), [(None, Drain()), ({}, Drain()), ({"timeout": None}, Drain()), ({"timeout": 1.5}, Drain(1500))]
)
async def test_a_drain_reaches_the_worker(
    client: httpx2.AsyncClient, store: Store, body: dict[str, float] | None, wish: Drain
) -> None:
    for _ in range(2):  # it may be repeated
        answer = await client.post(f"{PATH}/drain", **({} if body is None else {"json": body}))
        assert (answer.status_code, answer.json()["state"]) == (202, "draining")
        schemas.Worker.model_validate(answer.json())
    assert (await store.attempts.heartbeat(INFO, [])).drain == wish


async def test_a_worker_that_ends_as_soon_as_it_hears_of_a_drain_was_found(
    client: httpx2.AsyncClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    drain = Attempts.drain

    async def heard_at_once(attempts: Attempts, worker: str, wish: Drain) -> None:
        await drain(attempts, worker, wish)
        await store.attempts.leave(worker)

    monkeypatch.setattr(Attempts, "drain", heard_at_once)
    answer = await client.post(f"{PATH}/drain")
    assert (answer.status_code, answer.json()["state"]) == (202, "draining")


async def test_a_worker_that_registers_again_is_not_drained_by_the_earlier_request(
    client: httpx2.AsyncClient,
) -> None:
    for _ in range(2):
        answer = await client.post("/workers/register", json={"id": "simple"})
        assert (answer.status_code, answer.json()["state"]) == (201, "active")
        assert (await client.get("/workers/simple")).json()["state"] == "active"
        assert (await client.post("/workers/simple/drain")).json()["state"] == "draining"


async def test_a_drain_with_a_time_that_is_none_is_refused(client: httpx2.AsyncClient, store: Store) -> None:
    for body in ({"timeout": -1}, {"timeout": "soon"}, {"grace": 1}, []):
        answer = await client.post(f"{PATH}/drain", json=body)
        assert (answer.status_code, answer.json()["type"]) == (422, "/problems/validation")
    assert (await store.attempts.heartbeat(INFO, [])).drain is None


async def test_a_worker_that_is_taken_off_the_list_is_gone(client: httpx2.AsyncClient) -> None:
    assert (await client.delete(PATH)).status_code == 204
    assert (await client.get("/workers")).json()["data"] == []


async def test_an_unknown_worker_is_not_found(client: httpx2.AsyncClient) -> None:
    for method, path in (("GET", "/workers/x"), ("POST", "/workers/x/drain"), ("DELETE", "/workers/x")):
        answer = await client.request(method, path)
        assert (answer.status_code, answer.json()["detail"]) == (404, "no such worker: x")
