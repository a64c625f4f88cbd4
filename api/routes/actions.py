"""Bulk actions: cancel, retry, delete or move all jobs that match."""

import hashlib

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from api import body, idempotency, openapi, problems, schemas
from api.action_bodies import NewBulkAction
from api.context import context_of
from workron import ids
from workron.errors import NotFound
from workron.models import Idempotency

router = APIRouter(tags=["jobs"])


@router.post(
    "/jobs/actions",
    operation_id="order_action",
    status_code=202,
    response_model=schemas.BulkAction,
    responses=openapi.answers(
        {},
        problems.IDEMPOTENCY_CONFLICT,
        problems.TOO_LARGE,
        problems.UNSUPPORTED_MEDIA_TYPE,
        problems.VALIDATION,
        problems.STORE_UNAVAILABLE,
    ),
    openapi_extra=openapi.body(NewBulkAction) | idempotency.PARAMETER,
)
async def order_action(request: Request) -> Response:
    """Cancel, retry, delete or move all jobs that match, in the background; `GET` of its id tells how far it is."""
    context = context_of(request)
    body.require_json(request)
    raw = await body.read(request, context.settings.max_body)
    new = body.parse(NewBulkAction, raw)
    once = idempotency.of(request, raw)
    action = new.to_action(_id_of(once), once.fingerprint if once else "")
    document = schemas.action_document(await context.store.actions.order(action))
    return schemas.json_response(document, 202)


@router.get(
    "/jobs/actions",
    operation_id="list_actions",
    response_model=schemas.ActionList,
    responses=openapi.answers({}, problems.STORE_UNAVAILABLE),
)
async def list_actions(request: Request) -> Response:
    """List the latest 100 bulk actions, newest first; they are kept for a week."""
    actions = await context_of(request).store.actions.list()
    return schemas.json_response({"data": list(map(schemas.action_document, actions))})


@router.get(
    "/jobs/actions/{action_id}",
    operation_id="get_action",
    response_model=schemas.BulkAction,
    responses=openapi.answers({}, problems.NOT_FOUND, problems.STORE_UNAVAILABLE),
)
async def get_action(request: Request, action_id: str) -> Response:
    """Return a bulk action with how far it is."""
    action = await context_of(request).store.actions.get(_checked(action_id))
    return schemas.json_response(schemas.action_document(action))


@router.post(
    "/jobs/actions/{action_id}/abort",
    operation_id="abort_action",
    response_model=schemas.BulkAction,
    responses=openapi.answers({}, problems.NOT_FOUND, problems.CONFLICT, problems.STORE_UNAVAILABLE),
)
async def abort_action(request: Request, action_id: str) -> Response:
    """End a bulk action where it is; what it has done stays done."""
    action = await context_of(request).store.actions.abort(_checked(action_id))
    return schemas.json_response(schemas.action_document(action))


def _id_of(once: Idempotency | None) -> str:
    """Return a fresh id, or the one that always stands for this Idempotency-Key."""
    if once is None:
        return ids.new_id()
    return ids.encode(int.from_bytes(hashlib.sha256(f"{once.scope}:{once.key}".encode()).digest()[:16]))


def _checked(action_id: str) -> str:
    if not ids.is_id(action_id):
        raise NotFound("action", action_id)
    return action_id
