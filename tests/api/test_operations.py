"""What follows from the one line that declares an operation, and from its handler's parameters."""

from typing import Annotated, Any

import pytest
from fastapi import Query
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from api.auth.callers import READ, SUBMIT, ScopedRoute
from api.http.paths import JobId
from api.http.queries import StrictQuery
from api.openapi import DocumentedApi
from api.operations import OPTIONAL, JsonBody, Operations

Document = dict[str, Any]
EVERYWHERE = {"400", "403", "500", "503"}


class Thing(BaseModel):
    name: str = ""


async def with_body(request: Request, sent: Thing) -> Response:
    raise NotImplementedError


async def with_optional_body(request: Request, sent: Annotated[Thing, OPTIONAL]) -> Response:
    raise NotImplementedError


async def with_bytes(request: Request, raw: Annotated[bytes, JsonBody(Thing)]) -> Response:
    raise NotImplementedError


async def with_query(request: Request, query: Annotated[StrictQuery, Query()]) -> Response:
    raise NotImplementedError


async def with_id(request: Request, job_id: JobId) -> Response:
    raise NotImplementedError


def documented(target: str, handler: Any, *scopes: Any) -> tuple[ScopedRoute, Document, Document]:
    """Return the route of an operation, its part of the OpenAPI document, and all schemas."""
    router = Operations("things")
    router.operation(target, scopes, Thing)(handler)
    app = DocumentedApi(key_required=False)
    app.routes.extend(router.routes)
    [item] = app.openapi()["paths"].values()
    [operation] = item.values()
    return router.routes[0], operation, app.openapi()["components"]["schemas"]


@pytest.mark.parametrize(("handler", "required"), [(with_body, True), (with_optional_body, False), (with_bytes, True)])
def test_the_body_of_an_operation_is_documented_without_a_list_of_bodies(handler: Any, required: bool) -> None:
    route, operation, schemas = documented("POST /things", handler, SUBMIT)
    schema = {"$ref": "#/components/schemas/Thing"}
    assert operation["requestBody"] == {"required": required, "content": {"application/json": {"schema": schema}}}
    assert route.takes is Thing
    assert "Thing" in schemas


@pytest.mark.parametrize(
    ("target", "handler", "scopes", "statuses"),
    [
        ("POST /things", with_body, [SUBMIT], {"413", "415", "422"}),
        ("GET /things", with_query, [READ], {"422"}),
        ("GET /jobs/{job_id}", with_id, [READ], {"404"}),
        ("GET /jobs/{job_id}", with_id, [], {"404"}),
    ],
)
def test_the_problems_of_an_operation_follow_from_its_path_scopes_and_parameters(
    target: str, handler: Any, scopes: list[Any], statuses: set[str]
) -> None:
    _, operation, _ = documented(target, handler, *scopes)
    assert set(operation["responses"]) == statuses | EVERYWHERE | {"200"}
