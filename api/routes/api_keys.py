"""API keys and the audit log."""

from typing import Annotated

from fastapi import Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from api import problems, schemas
from api.auth.callers import ADMIN, note_targets
from api.context import context_of
from api.http.paths import KeyId
from api.http.queries import StrictQuery
from api.operations import Operations
from workron.specs.api_key import NewApiKey

router = Operations("keys")


class RecordQuery(StrictQuery):
    limit: Annotated[int, Field(ge=1, le=1000)] = 50
    cursor: Annotated[str, Field(min_length=1, max_length=50)] | None = None
    """`next_cursor` of the previous page."""


@router.operation("POST /keys", ADMIN, schemas.MadeKey, problems.CONFLICT, problems.STORE_FULL, status=201)
async def create_key(request: Request, sent: NewApiKey) -> Response:
    """Create an API key; only this response contains its text."""
    record, text = await context_of(request).store.api_keys.create(sent.to_new_key())
    note_targets(request, record.id)
    document = schemas.key_document(record) | {"key": text}
    return schemas.json_response(document, 201, {"cache-control": "no-store"})


@router.operation("GET /keys", ADMIN, schemas.ApiKeyList)
async def list_keys(request: Request) -> Response:
    """List API keys, oldest first; expired keys are listed for another 30 days."""
    records = await context_of(request).store.api_keys.list()
    return schemas.json_response({"data": list(map(schemas.key_document, records))})


@router.operation("DELETE /keys/{key_id}", ADMIN, status=204, responses={204: {"description": "The key is revoked"}})
async def revoke_key(request: Request, key_id: KeyId) -> Response:
    """Revoke an API key: all API servers reject it within 5 s. Jobs submitted with it continue."""
    context = context_of(request)
    try:
        await context.store.api_keys.revoke(key_id)
    finally:
        if context.keyring is not None:
            context.keyring.forget(key_id)
    return Response(status_code=204)


@router.operation("GET /audit", ADMIN, schemas.EntryPage)
async def list_audit(request: Request, query: Annotated[RecordQuery, Query()]) -> Response:
    """List the audit log, newest first: changes and rejected requests. Claims and reports of workers are not logged."""
    page = await context_of(request).store.audit.page(query.limit, query.cursor)
    return schemas.json_response(schemas.list_document(map(schemas.entry_document, page.entries), page.next_cursor))
