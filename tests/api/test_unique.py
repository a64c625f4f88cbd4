"""Unique keys and Idempotency-Keys over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from api import schemas
from api.app import create_app
from tests.api.live import AUTHORIZATION, KEY
from tests.builders import claim
from tests.servers import Bench
from workron.settings import Settings
from workron.store import Store, submit

KEY_FIELDS = {"key": "report: 2030", "until": "started", "on_conflict": "reject", "ttl": 60.5}
REJECT = {"key": "k", "on_conflict": "reject"}


async def post(client: httpx2.AsyncClient, path: str = "/jobs", key: str | None = None, **body: Any) -> httpx2.Response:
    headers = {"idempotency-key": key} if key else {}
    return await client.post(path, json=body, headers=headers)


@pytest.fixture
async def other(bench: Bench, settings: Settings) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of another API server on the same Redis."""
    app = create_app(bench.store(), settings, KEY)
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=AUTHORIZATION) as client:
        yield client
    await app.state.context.aclose()


async def test_what_is_answered_is_what_is_stored(client: httpx2.AsyncClient) -> None:
    defaults = {"until": "finished", "on_conflict": "return", "ttl": 86400}
    for given, expected in ((KEY_FIELDS, KEY_FIELDS), ({"key": "x"}, {"key": "x"} | defaults), (None, None)):
        new = (await post(client, command="x", unique=given)).json()
        assert new["unique"] == expected
        assert (await client.get(f"/jobs/{new['id']}")).json() == new


async def test_the_holder_is_answered_with_200(client: httpx2.AsyncClient) -> None:
    first = await post(client, command="a", unique={"key": "k"})
    second = await post(client, command="b", unique={"key": "k"})
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.json() == first.json()
    assert "idempotency-replayed" not in second.headers


async def test_a_conflict_names_the_holder(client: httpx2.AsyncClient, store: Store) -> None:
    first = (await post(client, command="a", unique={"key": "k"})).json()["id"]
    await claim(store)
    for what in ("reject", "replace"):
        response = await post(client, command="a", unique={"key": "k", "on_conflict": what})
        problem = response.json()
        assert (response.status_code, problem["type"]) == (409, "/problems/unique-conflict")
        assert (problem["job_id"], problem["key"]) == (first, "k")
    workflow = await post(client, "/workflows", jobs=[{"command": "x", "unique": {"key": "k"}}])
    assert (workflow.status_code, workflow.json()["job_id"]) == (409, first)


async def test_a_retry_that_cannot_have_the_key_is_a_conflict(client: httpx2.AsyncClient) -> None:
    first = (await post(client, command="a", unique={"key": "k"})).json()["id"]
    await client.post(f"/jobs/{first}/cancel")
    second = (await post(client, command="a", unique={"key": "k"})).json()["id"]
    response = await client.post(f"/jobs/{first}/retry")
    assert (response.status_code, response.json()["job_id"]) == (409, second)


async def test_holders_stand_in_the_answer_to_a_bulk_submission(client: httpx2.AsyncClient) -> None:
    first = (await post(client, command="a", unique={"key": "k"})).json()
    body = {"jobs": [{"command": "b"}, {"command": "c", "unique": {"key": "k"}}]}
    response = await post(client, "/jobs/bulk", key="i", **body)
    schemas.JobPage.model_validate(response.json())
    assert response.status_code == 201
    assert response.json()["data"][1] == first
    again = await post(client, "/jobs/bulk", key="i", **body)
    assert (again.status_code, again.json()) == (200, response.json())
    all_held = await post(client, "/jobs/bulk", jobs=[{"command": "c", "unique": {"key": "k"}}])
    assert (all_held.status_code, all_held.json()["data"]) == (200, [first])


@pytest.mark.parametrize(
    ("unique", "place"),
    [
        ({}, ["unique", "key"]),
        ({"key": ""}, ["unique", "key"]),
        ({"key": "a\nb"}, ["unique", "key"]),
        ({"key": "x" * 201}, ["unique", "key"]),
        ({"key": "k", "until": "done"}, ["unique", "until"]),
        ({"key": "k", "on_conflict": "ignore"}, ["unique", "on_conflict"]),
        ({"key": "k", "ttl": 0}, ["unique", "ttl"]),
        ({"key": "k", "ttl": 1e99}, ["unique", "ttl"]),
        ({"key": "k", "tll": 5}, ["unique", "tll"]),
        ("k", ["unique"]),
    ],
)
async def test_a_unique_that_makes_no_sense_is_named(client: httpx2.AsyncClient, unique: Any, place: list[str]) -> None:
    response = await post(client, command="x", unique=unique)
    assert (response.status_code, response.json()["errors"][0]["loc"]) == (422, place)


async def test_an_array_holds_its_key_to_the_end(client: httpx2.AsyncClient) -> None:
    body = {"command": "x", "array": {"size": 2}, "unique": {"key": "k", "until": "started"}}
    assert (await post(client, **body)).status_code == 422


@pytest.mark.parametrize("key", ["*", "{a}", "a:b", "%s", "größe", "k 1", "../meta", "x" * 200])
async def test_keys_may_be_any_text(client: httpx2.AsyncClient, key: str) -> None:
    unique = {"key": key, "on_conflict": "reject"}
    assert (await post(client, command="x", unique=unique)).status_code == 201
    assert (await post(client, command="x", unique=unique)).json()["key"] == key


BODIES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("/jobs", {"command": "x"}, {"command": "y"}),
    ("/jobs/bulk", {"jobs": [{"command": "x"}] * 3}, {"jobs": [{"command": "x"}] * 2}),
    ("/jobs/bulk", {"jobs": [{"command": "x"}] * 900}, {"jobs": [{"command": "x"}] * 901}),
    ("/workflows", {"name": "n", "jobs": [{"command": "x"}]}, {"name": "m", "jobs": [{"command": "x"}]}),
]


@pytest.mark.parametrize(("path", "body", "another"), BODIES)
async def test_an_idempotency_key_is_good_for_one_body(
    client: httpx2.AsyncClient, other: httpx2.AsyncClient, path: str, body: dict[str, Any], another: dict[str, Any]
) -> None:
    first = await post(client, path, key="i", **body)
    again = await post(other, path, key="i", **body)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.headers["idempotency-replayed"] == "true"
    assert _ids(again) == _ids(first)
    different = await post(other, path, key="i", **another)
    assert (different.status_code, different.json()["type"]) == (409, "/problems/idempotency-conflict")


def _ids(response: httpx2.Response) -> list[str]:
    document = response.json()
    found = document.get("data") or document.get("jobs") or [document]
    return [job["id"] for job in found]


@pytest.mark.parametrize(("path", "body", "another"), BODIES)
async def test_two_servers_at_once_store_a_submission_once(
    client: httpx2.AsyncClient, other: httpx2.AsyncClient, path: str, body: dict[str, Any], another: dict[str, Any]
) -> None:
    answers = await asyncio.gather(*(post(one, path, key="i", **body) for one in (client, other) * 3))
    assert sorted(answer.status_code for answer in answers) == [200] * 5 + [201]
    assert len({tuple(_ids(answer)) for answer in answers}) == 1


async def test_a_key_of_one_path_is_not_that_of_another(client: httpx2.AsyncClient) -> None:
    body = {"jobs": [{"command": "x"}]}
    await post(client, "/jobs/bulk", key="i", **body)
    assert (await post(client, "/workflows", key="i", **body)).status_code == 409


async def test_a_key_is_remembered_for_a_day_and_belongs_to_one_api_key(
    client: httpx2.AsyncClient, bench: Bench, store: Store
) -> None:
    first = (await post(client, key="i", command="x")).json()["id"]
    (name,) = [key async for key in bench.client.scan_iter(f"{bench.keys.prefix}idempotency:*")]
    assert 86_390_000 < await bench.client.pttl(name) <= submit.IDEMPOTENCY_MS == 86_400_000
    await bench.client.rename(name, name.replace(b"default:i", b"another:i"))  # as if another API key had sent it
    second = (await post(client, key="i", command="x")).json()["id"]
    assert second != first
    await bench.client.pexpire(name, 1)
    await asyncio.sleep(0.01)
    third = await post(client, key="i", command="x")
    assert (third.status_code, third.json()["id"] in {first, second}) == (201, False)


async def test_a_refused_submission_uses_no_idempotency_key_up(client: httpx2.AsyncClient) -> None:
    held = (await post(client, command="a", unique=REJECT)).json()["id"]
    assert (await post(client, key="i", command="b", unique=REJECT)).status_code == 409
    await client.post(f"/jobs/{held}/cancel")
    assert (await post(client, key="i", command="b", unique=REJECT)).status_code == 201
