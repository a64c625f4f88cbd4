"""Bulk actions: cancel, retry, delete or move all matching jobs."""

import hashlib
from typing import Annotated

from starlette.requests import Request
from starlette.responses import Response

from api import problems, schemas
from api.auth import queue_rights
from api.auth.callers import READ, SUBMIT, caller_of, note_targets
from api.context import context_of
from api.http import body, idempotency
from api.http.large import LARGE, in_thread
from api.http.paths import ActionId
from api.operations import JsonBody, Operations
from workron import ids
from workron.errors import NotFound
from workron.models import Idempotency
from workron.models.actions import Action
from workron.specs.bulk_action import NewBulkAction

router = Operations("jobs")


@router.operation(
    "POST /jobs/actions",
    SUBMIT,
    schemas.BulkAction,
    problems.IDEMPOTENCY_CONFLICT,
    status=202,
    extra=idempotency.PARAMETER,
)
async def order_action(
    request: Request, raw: Annotated[bytes, JsonBody(NewBulkAction, most=body.MOST_OF_ONE)]
) -> Response:
    """Cancel, retry, delete or move all matching jobs in the background; `GET` its id for the progress."""
    context = context_of(request)
    new = await body.parse_many(NewBulkAction, raw)
    caller = caller_of(request)
    if new.filter.queue is None:
        queue_rights.use_all_queues(caller, "set one in the filter")
    queue_rights.use_queues(caller, [queue for queue in (new.filter.queue, new.to and new.to.queue) if queue])
    once = await in_thread(idempotency.of, request, raw, large=len(raw) > LARGE)
    action = new.to_action(_id_of(once), once.fingerprint if once else "")
    document = schemas.action_document(await context.store.actions.order(action))
    note_targets(request, action.id)
    return schemas.json_response(document, 202)


@router.operation("GET /jobs/actions", READ, schemas.ActionList)
async def list_actions(request: Request) -> Response:
    """List the latest 100 bulk actions, newest first; they are kept for a week."""
    actions = await context_of(request).store.actions.list()
    shown = [action for action in actions if _sees(request, action)]
    return schemas.json_response({"data": list(map(schemas.action_document, shown))})


@router.operation("GET /jobs/actions/{action_id}", READ, schemas.BulkAction)
async def get_action(request: Request, action_id: ActionId) -> Response:
    """Return a bulk action with its progress."""
    action = await _visible(request, action_id)
    return schemas.json_response(schemas.action_document(action))


@router.operation("POST /jobs/actions/{action_id}/abort", SUBMIT, schemas.BulkAction, problems.CONFLICT)
async def abort_action(request: Request, action_id: ActionId) -> Response:
    """Abort a bulk action; completed changes stay."""
    await _visible(request, action_id)
    action = await context_of(request).store.actions.abort(action_id)
    return schemas.json_response(schemas.action_document(action))


def _id_of(once: Idempotency | None) -> str:
    """Return a new id, or the fixed id of this Idempotency-Key."""
    if once is None:
        return ids.new_id()
    return ids.encode(int.from_bytes(hashlib.sha256(f"{once.scope}:{once.key}".encode()).digest()[:16]))


async def _visible(request: Request, action_id: str) -> Action:
    """Return a bulk action if it concerns the caller's queues."""
    action = await context_of(request).store.actions.get(action_id)
    if not _sees(request, action):
        raise NotFound("action", action_id)
    return action


def _sees(request: Request, action: Action) -> bool:
    caller, queue = caller_of(request), action.where.queue
    return caller.queues is None or (queue is not None and caller.sees(queue))
