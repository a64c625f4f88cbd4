"""What holds for every operation of the OpenAPI document, so that a new one can't be forgotten."""

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from starlette.routing import Route

from api.app import create_app
from api.auth.callers import ScopedRoute
from api.http.middleware import OPEN_PATHS
from api.openapi import DocumentedApi
from api.operations import Operations
from tests.api.every_route import VALUES, every_route
from tests.api.live import KEY
from tests.security.conftest import Clients
from workron.models import Scope
from workron.settings import Settings
from workron.store import Store
from workron.store.api_keys import id_in

pytestmark = pytest.mark.parametrize("bench", ["fake"], indirect=True)

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND")
FOREIGN = (
    [("host", "evil.example")],
    [("host", "evil.example:8080")],
    [("host", "127.0.0.1.evil.example")],
    [("host", "127.0.0.1@evil.example")],
    [("host", "169.254.169.254")],
    [("host", "")],
    [("host", "localhost"), ("host", "localhost")],
    [("origin", "https://evil.example")],
    [("origin", "null")],
    [("origin", "http://127.0.0.1.evil.example")],
    [("origin", "http://127.0.0.1:81")],
    [("sec-fetch-site", "cross-site")],
    [("sec-fetch-site", "same-site")],
)
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain")


def paths(app: DocumentedApi) -> Iterator[str]:
    yield from ("/", "/docs", "/openapi.json", "/nowhere")
    for path in app.openapi()["paths"]:
        yield path.format(**VALUES)


def operations(app: DocumentedApi) -> Iterator[tuple[list[str], str, str, dict[str, Any]]]:
    """Declared scopes, method, target and body of each operation."""
    document = app.openapi()
    declared = [operation["x-scope"] for item in document["paths"].values() for operation in item.values()]
    for scopes, (method, target, body) in zip(declared, every_route(document), strict=True):
        yield scopes, method, target, body


async def trails(master: httpx2.AsyncClient) -> Any:
    """What can be seen to have changed."""
    return [(await master.get(path)).json() for path in ("/jobs", "/queues", "/schedules", "/workers", "/keys")]


def slug(response: httpx2.Response) -> str:
    return str(response.json()["type"].removeprefix("/problems/"))


async def test_no_method_of_any_path_is_answered_under_a_foreign_name_or_to_a_foreign_page(
    app: DocumentedApi, master: httpx2.AsyncClient
) -> None:
    before = await trails(master)
    for path in paths(app):
        for method in METHODS:
            for headers in FOREIGN:
                response = await master.request(method, path, headers=headers)
                assert response.status_code == 403, (method, path, headers)
                assert method == "HEAD" or slug(response).startswith("forbidden-"), (method, path, headers)
                assert not any(name.startswith("access-control-") for name in response.headers)
    assert await trails(master) == before


@pytest.mark.parametrize("site", [[("origin", "https://evil.example")], [("sec-fetch-site", "cross-site")]])
@pytest.mark.parametrize("form", FORMS)
async def test_no_operation_takes_the_form_of_a_foreign_page_even_if_no_key_is_demanded(
    store: Store, settings: Settings, site: list[tuple[str, str]], form: str
) -> None:
    app = create_app(store, settings, None)
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        before = await trails(client)
        for _, method, target, _ in operations(app):
            headers = [*site, ("content-type", form)]
            response = await client.request(method, target, headers=headers, content=b'{"command": "true"}')
            assert (response.status_code, slug(response)) == (403, "forbidden-origin"), (method, target)
        assert await trails(client) == before


@pytest.mark.parametrize("form", FORMS)
async def test_no_operation_reads_json_from_a_form(app: DocumentedApi, master: httpx2.AsyncClient, form: str) -> None:
    for _, method, target, body in operations(app):
        if "json" in body:
            request = master.build_request(method, target, json=body["json"])
            response = await master.request(method, target, content=request.content, headers={"content-type": form})
            assert (response.status_code, slug(response)) == (415, "unsupported-media-type"), (method, target)


async def test_no_operation_answers_without_a_key_or_with_a_wrong_or_expired_one(
    app: DocumentedApi, clients: Clients, store: Store
) -> None:
    expired, revoked, good = (
        await clients.key("admin", ttl_ms=1),
        await clients.key("admin"),
        await clients.key("admin"),
    )
    await store.api_keys.revoke(id_in(revoked) or "")
    for key in (
        *(None, "", "x", KEY[:-1], KEY + "x", KEY.upper(), expired, revoked),
        *(good[:-1], good[:-1] + ("A" if good[-1] != "A" else "B"), good + "A", good + ".", good.replace(".", "..")),
        *(f"wk1.{id_in(good)}.", f"wk1..{good.rpartition('.')[2]}", "wk1.." * 50, "wf1.a.b.1.9.x", "wk1." + "0" * 5000),
    ):
        client = await clients.knowing(key)
        for scopes, method, target, body in operations(app):
            response = await client.request(method, target, **body)
            assert response.status_code == 401 or not scopes, (key, method, target)
            assert not scopes or slug(response) == "unauthorized"


async def test_every_operation_asks_for_its_scope_and_for_no_other(app: DocumentedApi, clients: Clients) -> None:
    for scope in Scope:
        client = await clients(scope)
        for scopes, method, target, body in operations(app):
            response = await client.request(method, target, **body)
            allowed = not scopes or scope in scopes or scope is Scope.ADMIN
            assert (response.status_code == 403) is not allowed, (scope, method, target, response.text)
            if not allowed:
                assert slug(response) == "forbidden"
                assert response.json()["scopes"] == sorted(scopes)


async def test_a_key_without_the_scope_is_refused_before_its_body_is_read(clients: Clients) -> None:
    reader = await clients("read")
    sent = 0

    async def endless() -> Any:
        nonlocal sent
        while True:
            sent += 1
            yield b" " * 65536

    response = await reader.post("/jobs", content=endless(), headers={"content-type": "application/json"})
    assert (response.status_code, response.json()["scopes"]) == (403, ["submit"])


def test_the_document_names_the_scope_of_every_operation(app: DocumentedApi) -> None:
    for path, item in app.openapi()["paths"].items():
        for operation in item.values():
            assert operation["x-scope"] or path in OPEN_PATHS
            security = [{"key": [scope]} for scope in operation["x-scope"]]
            assert operation.get("security", []) == security
            assert ("401" in operation["responses"]) == bool(security)


def test_a_route_that_declares_no_scope_cannot_be_made(app: DocumentedApi) -> None:
    with pytest.raises(TypeError, match="scopes"):
        ScopedRoute("/new", lambda: None, methods=["GET"], openapi_extra={})  # type: ignore[call-arg]  # it has none
    with pytest.raises(TypeError, match="scopes"):
        Operations("new").operation("GET /new")  # type: ignore[call-arg]  # the same
    plain = {route.path for route in app.routes if isinstance(route, Route) and not isinstance(route, ScopedRoute)}
    assert plain <= OPEN_PATHS


async def test_every_change_by_people_is_recorded_and_nothing_else(
    app: DocumentedApi, master: httpx2.AsyncClient, clients: Clients
) -> None:
    worker = await clients("work")
    reader = await clients("read")
    expected, workers_too = set(), set()
    for item in app.openapi()["paths"].values():
        for method, operation in item.items():
            scopes = set(operation["x-scope"])
            if method != "get" and scopes & {"submit", "admin"}:
                (workers_too if "work" in scopes else expected).add(operation["operationId"])
    assert workers_too == {"forget_worker"}
    for _, method, target, body in operations(app):
        await master.request(method, target, **body)
        await worker.request(method, target, **body)
        await reader.request(method, target, **body)
    await app.state.context.audit.aclose()
    entries = (await master.get("/audit?limit=1000")).json()["data"]
    by = {who: [one["action"] for one in entries if one["key_name"] == who] for who in (None, "key-1", "key-2")}
    assert sorted(by[None]) == sorted(expected | workers_too)
    assert sorted(by["key-1"]) == sorted(expected)
    assert sorted(by["key-2"]) == sorted(expected | workers_too)
    assert {one["action"] for one in entries if one["status"] == 403 and one["key_name"] == "key-1"} == expected
