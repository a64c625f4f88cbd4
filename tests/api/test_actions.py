"""Bulk actions and the deletion of jobs over HTTP."""

import asyncio
from typing import Any

import httpx2
import pytest

from api import schemas
from tests.builders import claim, finish, new_job, submit
from workron import ids
from workron.store import Store


async def order(client: httpx2.AsyncClient, key: str | None = None, **body: Any) -> dict[str, Any]:
    headers = {"idempotency-key": key} if key else {}
    response = await client.post("/jobs/actions", json={"filter": {}} | body, headers=headers)
    assert response.status_code == 202, response.text
    schemas.BulkAction.model_validate(response.json())
    answer: dict[str, Any] = response.json()
    return answer


async def work_off(client: httpx2.AsyncClient, store: Store, action: dict[str, Any]) -> dict[str, Any]:
    while await store.actions.step("r"):
        pass
    answer: dict[str, Any] = (await client.get(f"/jobs/actions/{action['id']}")).json()
    schemas.BulkAction.model_validate(answer)
    return answer


FULL = {
    "status": "pending",
    "queue": "q",
    "name": "n",
    "workflow": "03557FNiXdtaIcOFmFQkXK",
    "error": "x",
    "tag": ["a"],
    "created_after": "2020-01-01T00:00:00.000Z",
    "created_before": "2030-01-01T00:00:00.000Z",
    "finished_after": "2020-01-01T00:00:00.001Z",
    "finished_before": "2030-01-01T00:00:00.001Z",
}


async def test_an_order_is_answered_as_it_was_given(client: httpx2.AsyncClient) -> None:
    answer = await order(client, action="move", filter=FULL, to={"queue": "b", "priority": 3}, dry_run=True)
    assert answer["filter"] == FULL
    assert answer["to"] == {"queue": "b", "priority": 3}
    assert (answer["state"], answer["dry_run"]) == ("running", True)
    plain = await order(client, action="cancel")
    assert plain["to"] is None
    assert set(map(str, plain["filter"].values())) == {"None", "[]"}


async def test_an_action_is_followed_to_its_end(client: httpx2.AsyncClient, store: Store) -> None:
    await submit(store, *(new_job(queue="q") for _ in range(3)))
    action = await order(client, action="cancel", filter={"queue": "q"})
    ended = await work_off(client, store, action)
    assert (ended["state"], ended["matched"], ended["done"], ended["failed"]) == ("done", 3, 3, 0)
    assert ended["finished_at"] is not None
    listed = (await client.get("/jobs/actions")).json()
    schemas.ActionList.model_validate(listed)
    assert [one["id"] for one in listed["data"]] == [action["id"]]
    assert (await client.post(f"/jobs/actions/{action['id']}/abort")).status_code == 409


async def test_an_action_is_aborted(client: httpx2.AsyncClient) -> None:
    action = await order(client, action="cancel")
    for _ in range(2):
        response = await client.post(f"/jobs/actions/{action['id']}/abort")
        assert (response.status_code, response.json()["state"]) == (200, "aborted")


async def test_an_unknown_action_is_not_found(client: httpx2.AsyncClient) -> None:
    for action in (ids.new_id(), "x"):
        assert (await client.get(f"/jobs/actions/{action}")).status_code == 404
        assert (await client.post(f"/jobs/actions/{action}/abort")).status_code == 404


async def test_an_order_with_a_key_is_given_once(client: httpx2.AsyncClient) -> None:
    first = await order(client, key="k", action="cancel")
    assert await order(client, key="k", action="cancel") == first
    response = await client.post(
        "/jobs/actions", json={"action": "retry", "filter": {}}, headers={"idempotency-key": "k"}
    )
    assert (response.status_code, response.json()["type"]) == (409, "/problems/idempotency-conflict")


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"action": "stop"}, ["action"]),
        ({"action": "cancel", "filter": {"status": "done"}}, []),
        ({"action": "retry", "filter": {"status": "skipped"}}, []),
        ({"action": "move"}, []),
        ({"action": "move", "to": {}}, []),
        ({"action": "cancel", "to": {"queue": "b"}}, []),
        ({"action": "move", "to": {"priority": 10}}, ["to", "priority"]),
        ({"action": "cancel", "filter": {"quue": "b"}}, ["filter", "quue"]),
        ({"action": "cancel", "filter": {"error": ""}}, ["filter", "error"]),
        ({"action": "cancel", "filter": {"error": "\0"}}, ["filter", "error"]),
        ({"action": "cancel", "filter": {"created_after": "yesterday"}}, ["filter", "created_after"]),
        ({"action": "cancel", "filter": {"workflow": "x"}}, ["filter", "workflow"]),
        ({"action": "cancel", "filter": None}, ["filter"]),
    ],
)
async def test_an_order_that_makes_no_sense_is_refused(
    client: httpx2.AsyncClient, body: dict[str, Any], place: list[str]
) -> None:
    response = await client.post("/jobs/actions", json={"filter": {}} | body)
    assert response.status_code == 422, response.text
    assert response.json()["errors"][0]["loc"] == place


async def test_the_filter_is_required(client: httpx2.AsyncClient) -> None:
    assert (await client.post("/jobs/actions", json={"action": "cancel"})).status_code == 422


async def test_only_a_finished_job_is_deleted(client: httpx2.AsyncClient, store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    assert (await client.delete(f"/jobs/{job_id}")).status_code == 409
    await finish(store, (await claim(store))[0])
    response = await client.delete(f"/jobs/{job_id}")
    assert (response.status_code, response.content) == (204, b"")
    for ident in (job_id, "x", ids.new_id()):
        assert (await client.delete(f"/jobs/{ident}")).status_code == 404


async def test_two_servers_take_one_order_with_a_key_once(client: httpx2.AsyncClient, store: Store) -> None:
    answers = await asyncio.gather(*(order(client, key="same", action="cancel") for _ in range(10)))
    assert len({answer["id"] for answer in answers}) == 1
    assert len(await store.actions.list()) == 1
