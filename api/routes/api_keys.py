"""API keys and the audit log."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from api import openapi, problems, schemas
from api.auth.callers import ADMIN, ScopedRoute, needs, note_targets
from api.context import context_of
from api.http import body
from api.http.queries import StrictQuery
from workron import ids
from workron.errors import NotFound
from workron.specs.api_key import NewApiKey

router = APIRouter(route_class=ScopedRoute, tags=["keys"])


class RecordQuery(StrictQuery):
    limit: Annotated[int, Field(ge=1, le=1000)] = 50
    cursor: Annotated[str, Field(min_length=1, max_length=50)] | None = None
    """`next_cursor` of the previous page."""


@router.post(
    "/keys",
    operation_id="create_key",
    status_code=201,
    response_model=schemas.MadeKey,
    responses=openapi.answers(
        {},
        problems.CONFLICT,
        problems.TOO_LARGE,
        problems.UNSUPPORTED_MEDIA_TYPE,
        problems.VALIDATION,
        problems.STORE_UNAVAILABLE,
        problems.STORE_FULL,
    ),
    openapi_extra=needs(ADMIN) | openapi.body(NewApiKey),
)
async def create_key(request: Request) -> Response:
    """Create an API key; only this response contains its text."""
    context = context_of(request)
    new = await body.required(NewApiKey, request, context.settings.max_body)
    record, text = await context.store.api_keys.create(new.to_new_key())
    note_targets(request, record.id)
    document = schemas.key_document(record) | {"key": text}
    return schemas.json_response(document, 201, {"cache-control": "no-store"})


@router.get(
    "/keys",
    operation_id="list_keys",
    response_model=schemas.ApiKeyList,
    responses=openapi.answers({}, problems.STORE_UNAVAILABLE),
    openapi_extra=needs(ADMIN),
)
async def list_keys(request: Request) -> Response:
    """List API keys, oldest first; expired keys are listed for another 30 days."""
    records = await context_of(request).store.api_keys.list()
    return schemas.json_response({"data": list(map(schemas.key_document, records))})


@router.delete(
    "/keys/{key_id}",
    operation_id="revoke_key",
    status_code=204,
    response_class=Response,
    responses=openapi.answers(
        {204: {"description": "The key is revoked"}}, problems.NOT_FOUND, problems.STORE_UNAVAILABLE
    ),
    openapi_extra=needs(ADMIN),
)
async def revoke_key(request: Request, key_id: str) -> Response:
    """Revoke an API key: all API servers reject it within 5 s. Jobs submitted with it continue."""
    context = context_of(request)
    if not ids.is_id(key_id):
        raise NotFound("key", key_id)
    try:
        await context.store.api_keys.revoke(key_id)
    finally:
        if context.keyring is not None:
            context.keyring.forget(key_id)
    return Response(status_code=204)


@router.get(
    "/audit",
    operation_id="list_audit",
    response_model=schemas.EntryPage,
    responses=openapi.answers({}, problems.VALIDATION, problems.STORE_UNAVAILABLE),
    openapi_extra=needs(ADMIN),
)
async def list_audit(request: Request, query: Annotated[RecordQuery, Query()]) -> Response:
    """List the audit log, newest first: changes and rejected requests. Claims and reports of workers are not logged."""
    page = await context_of(request).store.audit.page(query.limit, query.cursor)
    return schemas.json_response(schemas.list_document(map(schemas.entry_document, page.entries), page.next_cursor))
