"""A key that is revoked while a request goes on: what waits or arrives by then is done and told no more."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest

from api.openapi import DocumentedApi
from tests.api.every_route import every_route
from tests.builders import claim, finish, new_job
from tests.security.conftest import Clients
from workron.models import Claim, OutputPatch, Status
from workron.store import Store
from workron.store.api_keys import id_in

pytestmark = pytest.mark.parametrize("bench", ["valkey"], indirect=True)

WAITS: dict[str, Callable[[str], tuple[str, str, dict[str, Any]]]] = {
    "get_job": lambda job: ("GET", f"/jobs/{job}?wait=30", {}),
    "next_job": lambda _: ("GET", "/jobs/next?worker_id=w&wait=30", {}),
    "claim_jobs": lambda _: ("POST", "/claims", {"json": {"worker_id": "w", "wait": 30}}),
    "list_cancels": lambda _: ("GET", "/cancels?worker_id=w1&wait=30", {}),
    "get_output": lambda job: ("GET", f"/jobs/{job}/output?follow=true", {}),
}
"""Requests that wait, by operation; what they wait for is below."""


@pytest.fixture(autouse=True)
def asked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.auth.callers.FRESH_S", 0.0)
    monkeypatch.setattr("api.auth.keyring.REMEMBERED_S", 0.0)


def operations(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(path, operation) for path, item in document["paths"].items() for operation in item.values()]


def waits(operation: dict[str, Any], document: dict[str, Any]) -> bool:
    names = [parameter["name"] for parameter in operation.get("parameters", ())]
    for content in operation.get("requestBody", {}).get("content", {}).values():
        name = content["schema"].get("$ref", "").rpartition("/")[2]
        names += document["components"]["schemas"].get(name, {}).get("properties", {})
    return not {"wait", "follow"}.isdisjoint(names)


def test_all_that_waits_is_asked_here(app: DocumentedApi) -> None:
    document = app.openapi()
    assert {one["operationId"] for _, one in operations(document) if waits(one, document)} == set(WAITS)


async def revoke(store: Store, key: str) -> None:
    await store.api_keys.revoke(id_in(key) or "")


async def let_it_be_answered(store: Store, held: Claim) -> str:
    """Have come all that may be waited for: output, a cancel, a job to claim, an end; returns the job to claim."""
    [pending] = (await store.submit([new_job()])).ids
    await store.attempts.write_output([(held.id, held.fence, OutputPatch(0, b"secret", 6))])
    await store.cancel(held.id)
    return pending


@pytest.mark.parametrize("operation", WAITS)
@pytest.mark.parametrize("good", [True, False])
async def test_a_waiting_request_is_answered_nothing_when_its_key_has_expired(
    store: Store, clients: Clients, operation: str, good: bool
) -> None:
    """[A revoked worker still got a job a minute later, and who followed an output all that came of it.]"""
    [job_id] = (await store.submit([new_job(queue="far")])).ids
    [held] = await claim(store, queues=["far"], worker="w1")
    key = await clients.key("read", "work")
    client = await clients.knowing(key)
    method, target, body = WAITS[operation](job_id)
    asking = asyncio.create_task(client.request(method, target, **body))
    await asyncio.sleep(0.3)
    assert not asking.done()
    if not good:
        await revoke(store, key)
    pending = await let_it_be_answered(store, held)
    if operation in {"get_job", "get_output"}:
        await finish(store, held)
    answer = await asyncio.wait_for(asking, 20)
    if operation == "get_output":
        assert answer.text == ("secret" if good else "")
    else:
        assert answer.status_code == (200 if good else 401)
        assert good or answer.headers["www-authenticate"].startswith("Bearer")
    claimed = await store.job(pending)
    expected = good and operation in {"next_job", "claim_jobs"}
    assert (claimed.status, claimed.attempts) == ((Status.RUNNING, 1) if expected else (Status.PENDING, 0))


async def test_a_body_that_ends_after_its_key_does_nothing(
    app: DocumentedApi, store: Store, clients: Clients, master: httpx2.AsyncClient
) -> None:
    """[It could be held back until the key was long revoked, and was taken then.]"""
    document = app.openapi()
    before = [(await master.get(path)).json() for path in ("/jobs", "/queues", "/schedules", "/workers")]
    asked = 0
    for _, (method, target, body) in zip(operations(document), every_route(document), strict=True):
        if not body:
            continue
        key = await clients.key("admin")
        client = await clients.knowing(key)
        request = client.build_request(method, target, **body)
        content = await request.aread()

        async def slowly(content: bytes = content, key: str = key) -> AsyncIterator[bytes]:
            yield content[:-1]
            await revoke(store, key)
            yield content[-1:]

        headers = {"content-type": request.headers.get("content-type", "application/octet-stream")}
        answer = await client.request(method, target, content=slowly(), headers=headers)
        assert answer.status_code == 401, (method, target, answer.text)
        asked += 1
    assert asked == sum("requestBody" in operation for _, operation in operations(document)) > 15
    assert [(await master.get(path)).json() for path in ("/jobs", "/queues", "/schedules", "/workers")] == before


async def test_a_key_is_not_checked_again_for_each_part_of_a_body(
    app: DocumentedApi, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.auth.callers.FRESH_S", 30.0)
    client = await clients("submit")
    judged = 0
    caller = app.state.context.keyring.caller

    async def counted(*asked: Any) -> Any:
        nonlocal judged
        judged += 1
        return await caller(*asked)

    monkeypatch.setattr(app.state.context.keyring, "caller", counted)

    async def parts() -> AsyncIterator[bytes]:
        yield b'{"command":'
        for _ in range(100):
            yield b" "
        yield b'"true"}'

    answer = await client.post("/jobs", content=parts(), headers={"content-type": "application/json"})
    assert (answer.status_code, judged) == (201, 1)
