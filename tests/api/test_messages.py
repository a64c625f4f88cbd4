"""Messages about wrong requests are in plain words, and name the field: no terms of the libraries below."""

import json
from typing import Any

import httpx2
import pytest

from api.openapi import DocumentedApi
from tests.api.direct import ask
from tests.api.live import AUTHORIZATION

NAME = "must be 1 to 64 letters, digits, '_', '-' and '.', and not '.' or '..'"
LENGTH = "is not a duration up to 3660d; write seconds, or like 0.5s, 30s, 5m, 24h, 7d"


@pytest.mark.parametrize(
    ("field", "place", "message"),
    [
        ({"retry_on_exit": [999]}, ["retry_on_exit", 0], "must be at most 255"),
        (
            {"no_retry_on_exit": [1, "300-400"]},
            ["no_retry_on_exit", 1],
            "must be an exit code from 1 to 255, or a range like 64-78",
        ),
        ({"retry_on_exit": [None]}, ["retry_on_exit", 0], "must be a whole number or a string"),
        (
            {"depends_on": [{"job": "a", "when": "don"}]},
            ["depends_on", 0, "when"],
            "must be 'done', 'failed' or 'finished'",
        ),
        ({"depends_on": [5]}, ["depends_on", 0], "must be a string or an object"),
        ({"retry": {"factor": "abc"}}, ["retry", "factor"], "must be a number"),
        ({"retry": {"factor": 0.5}}, ["retry", "factor"], "must be at least 1"),
        ({"queue": ".."}, ["queue"], NAME),
        ({"queue": "a b"}, ["queue"], NAME),
        ({"name": "a\n"}, ["name"], "must not contain control characters"),
        ({"command": "a\0"}, ["command"], "must not contain NUL characters"),
        ({"env": {"str": 5}}, ["env", "str"], "must be a string"),
        ({"tags": "x"}, ["tags"], "must be a list"),
        ({"priority": 5.5}, ["priority"], "must be a whole number"),
        ({"comand": "x"}, ["comand"], "there is no such field"),
        ({"concurrency": {"key": "k"}}, ["concurrency", "limit"], "is required"),
        ({"unique": "k"}, ["unique"], "must be an object"),
        ({"delay": "3661d"}, ["delay"], LENGTH),
        (
            {"run_at": "2030-01-01T00:00:00+24:00"},
            ["run_at"],
            "has a date, a time or an offset that is out of range",
        ),
        ({"deadline": "2030-02-30T00:00:00Z"}, ["deadline"], "has a date, a time or an offset that is out of range"),
    ],
)
async def test_a_wrong_field_is_refused_in_plain_words(
    client: httpx2.AsyncClient, field: dict[str, Any], place: list[Any], message: str
) -> None:
    response = await client.post("/jobs", json={"command": "true"} | field)
    assert response.status_code == 422
    assert response.json()["errors"] == [{"loc": place, "msg": message}]


@pytest.mark.parametrize("length", ["3650d", "3660d", "87840h", "5270400m", "316224000s", "316224000000ms", 316224000])
async def test_the_longest_duration_is_accepted_in_every_unit(client: httpx2.AsyncClient, length: Any) -> None:
    assert (await client.post("/jobs", json={"command": "true", "delay": length})).status_code == 201


@pytest.mark.parametrize("length", ["3660.1d", "87841h", "5270401m", "316224001s", "316224000001ms", 316224001])
async def test_a_longer_duration_is_refused_in_every_unit(client: httpx2.AsyncClient, length: Any) -> None:
    assert (await client.post("/jobs", json={"command": "true", "delay": length})).status_code == 422


@pytest.mark.parametrize("name", [".", ".."])
async def test_a_name_that_clients_resolve_as_a_path_is_refused(app: DocumentedApi, name: str) -> None:
    sent: dict[str, dict[str, Any]] = {
        f"PUT /schedules/{name}": {"cron": "@daily", "job": {"command": "true"}},
        f"POST /queues/{name}/pause": {},
        "POST /claims": {"worker_id": "w", "queues": [name]},
        "POST /workers/register": {"worker_id": name, "queues": ["default"]},
        "POST /keys": {"name": "k", "scopes": ["read"], "queues": [name]},
        "POST /jobs": {"command": "true", "queue": name},
    }
    headers = AUTHORIZATION | {"content-type": "application/json"}
    for route, body in sent.items():
        status, answer = await ask(app, *route.split(), headers, body=json.dumps(body).encode())
        assert (status, route) == (422, route), answer


@pytest.mark.parametrize("name", ["...", ".a", "..a", "a.", "-", "a" * 64, "." * 64])
async def test_other_names_with_dots_are_accepted(client: httpx2.AsyncClient, name: str) -> None:
    assert (await client.post(f"/queues/{name}/pause")).status_code == 200
    assert (await client.put(f"/schedules/{name}", json={"cron": "@daily", "job": {"command": "c"}})).status_code == 201


async def test_the_id_of_a_worker_is_one_segment_of_a_path(client: httpx2.AsyncClient) -> None:
    for wrong in ("a/b", ".", "..", "a b", ""):
        response = await client.post("/claims", json={"worker_id": wrong, "queues": ["default"]})
        assert response.status_code == 422, wrong
    for right in ("host-1:2", "...", ".a", "..a", "a?b#c%d"):
        claim = await client.post("/claims", json={"worker_id": right, "queues": ["default"]})
        assert claim.is_success, (right, claim.text)
