"""What every request must pass, whatever its method and path; and the answers to what leads nowhere."""

import httpx2
import pytest

from api.app import create_app
from api.openapi import DocumentedApi
from workron.settings import Settings
from workron.store import Store

pytestmark = pytest.mark.parametrize("bench", ["fake"], indirect=True)

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"]
OPEN = ["/", "/docs", "/openapi.json", "/livez", "/readyz"]


def slug(response: httpx2.Response) -> str:
    assert response.headers["content-type"] == "application/problem+json"
    return str(response.json()["type"].removeprefix("/problems/"))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("path", ["/jobs", "/livez", "/", "/nowhere"])
async def test_no_method_is_answered_under_a_foreign_host_name(
    client: httpx2.AsyncClient, method: str, path: str
) -> None:
    response = await client.request(method, path, headers={"host": "evil.example:8080"})
    assert response.status_code == 403
    assert method == "HEAD" or slug(response) == "forbidden-host"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("path", ["/jobs", "/livez", "/", "/nowhere"])
@pytest.mark.parametrize("header", [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")])
async def test_no_method_is_answered_to_a_page_of_another_site(
    client: httpx2.AsyncClient, method: str, path: str, header: tuple[str, str]
) -> None:
    response = await client.request(method, path, headers=[header])
    assert response.status_code == 403
    assert method == "HEAD" or slug(response) == "forbidden-origin"
    assert "access-control-allow-origin" not in response.headers


async def test_a_second_host_header_is_refused(client: httpx2.AsyncClient) -> None:
    response = await client.get("/livez", headers=[("host", "localhost"), ("host", "localhost")])
    assert slug(response) == "forbidden-host"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("path", ["/jobs", "/jobs/x/output", "/health", "/nowhere", "/livez/", "/docs/x"])
async def test_nothing_is_answered_without_the_key(client: httpx2.AsyncClient, method: str, path: str) -> None:
    del client.headers["authorization"]
    response = await client.request(method, path)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == 'Bearer realm="workron"'
    assert method == "HEAD" or slug(response) == "unauthorized"


@pytest.mark.parametrize(
    "authorization",
    [
        "Bearer",
        "Bearer ",
        "Bearer wrong-key-wrong-key",
        "Bearer a-key-for-tests-onl",
        "Bearer a-key-for-tests-only2",
        "Basic a-key-for-tests-only",
        "a-key-for-tests-only",
        "Bearer ä",
    ],
)
async def test_a_wrong_key_is_refused(client: httpx2.AsyncClient, authorization: str) -> None:
    response = await client.get("/jobs", headers=[(b"authorization", authorization.encode())])
    assert response.status_code == 401


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Bearer "])
async def test_the_name_of_the_scheme_may_be_in_any_case(client: httpx2.AsyncClient, scheme: str) -> None:
    response = await client.get("/jobs", headers={"authorization": f"{scheme} a-key-for-tests-only"})
    assert response.status_code == 200


@pytest.mark.parametrize("path", OPEN)
async def test_what_tells_nothing_about_jobs_needs_no_key(client: httpx2.AsyncClient, path: str) -> None:
    del client.headers["authorization"]
    assert (await client.get(path)).status_code == 200


async def test_without_a_key_set_none_is_demanded_but_host_and_origin_are_checked(
    store: Store, settings: Settings
) -> None:
    transport = httpx2.ASGITransport(create_app(store, settings, None))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        assert (await client.get("/jobs")).status_code == 200
        assert (await client.get("/jobs", headers={"host": "evil.example"})).status_code == 403
        assert (await client.get("/jobs", headers={"origin": "http://evil.example"})).status_code == 403


async def test_head_is_answered_like_get_without_the_body(client: httpx2.AsyncClient) -> None:
    for path in [*OPEN, "/jobs", "/queues", "/nowhere"]:
        get, head = await client.get(path), await client.head(path)
        assert (head.status_code, head.content) == (get.status_code, b"")
        assert head.headers["content-length"] == str(len(get.content))


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/jobs", "GET, HEAD, POST"),
        ("PUT", "/jobs/x", "GET, HEAD, DELETE"),
        ("GET", "/workflows", "POST"),
        ("OPTIONS", "/jobs/x/cancel", "POST"),
        ("HEAD", "/workflows", "POST"),
        ("POST", "/", "GET, HEAD"),
        ("PUT", "/jobs/bulk", "POST"),
    ],
)
async def test_a_wrong_method_is_answered_with_the_right_ones(
    client: httpx2.AsyncClient, method: str, path: str, allowed: str
) -> None:
    response = await client.request(method, path)
    assert (response.status_code, response.headers["allow"]) == (405, allowed)
    assert method == "HEAD" or slug(response) == "method-not-allowed"


@pytest.mark.parametrize("path", ["/nowhere", "/jobs/", "/jobs/x/y", "/claim", "/metrics"])
async def test_an_unknown_path_is_a_problem_too(client: httpx2.AsyncClient, path: str) -> None:
    assert slug(await client.get(path)) == "not-found"


async def test_an_unexpected_exception_is_answered_without_its_text(
    app: DocumentedApi, client: httpx2.AsyncClient
) -> None:
    @app.get("/broken")
    async def broken() -> None:
        raise ZeroDivisionError("a secret")

    response = await client.get("/broken")
    assert (response.status_code, slug(response)) == (500, "internal")
    assert "secret" not in response.text


async def test_a_browser_is_greeted_by_a_page_that_can_run_nothing(client: httpx2.AsyncClient) -> None:
    for path in ("/", "/docs"):
        page = await client.get(path, headers={"accept": "text/html,*/*"})
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
        assert "<script" not in page.text
        assert "http://" not in page.text
        assert "https://" not in page.text


async def test_the_reference_names_every_operation_and_field(app: DocumentedApi, client: httpx2.AsyncClient) -> None:
    page = (await client.get("/docs")).text
    document = app.openapi()
    for path, operations in document["paths"].items():
        assert all(f"{method.upper()} {path}" in page for method in operations)
    for schema in document["components"]["schemas"].values():
        assert all(f"<td>{field}</td>" in page for field in schema.get("properties", {}))


async def test_a_program_at_the_root_gets_json(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/")).json()["name"] == "workron"
