"""Queues: limit, pause and purge them."""

from typing import Annotated, Final

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from api import openapi, problems, schemas
from api.auth.callers import ADMIN, ScopedRoute, needs
from api.context import context_of
from api.http import body
from workron import models
from workron.models.job_fields import QUEUE_PATTERN
from workron.specs.workflow import QueueChange

router = APIRouter(route_class=ScopedRoute, tags=["system"])

QueueName = Annotated[str, Path(pattern=QUEUE_PATTERN)]
_FAILURES: Final = (problems.VALIDATION, problems.STORE_UNAVAILABLE)
_PURGE_S: Final = 10.0
"""Maximum duration of a purge within one request."""


@router.patch(
    "/queues/{queue}",
    operation_id="change_queue",
    response_model=schemas.Queue,
    responses=openapi.answers({}, problems.TOO_LARGE, problems.UNSUPPORTED_MEDIA_TYPE, *_FAILURES),
    openapi_extra=needs(ADMIN) | openapi.body(QueueChange),
)
async def change_queue(request: Request, queue: QueueName) -> Response:
    """Set how many jobs of a queue may wait, run, or start per duration; the queue need not exist yet."""
    change = await body.required(QueueChange, request, context_of(request).settings.max_body)
    return await _change(request, queue, change.to_change())


@router.post(
    "/queues/{queue}/pause",
    operation_id="pause_queue",
    response_model=schemas.Queue,
    responses=openapi.answers({}, *_FAILURES),
    openapi_extra=needs(ADMIN),
)
async def pause_queue(request: Request, queue: QueueName) -> Response:
    """Stop starting jobs of a queue; running jobs continue. The queue need not exist yet."""
    return await _change(request, queue, models.QueueChange(paused=True))


@router.post(
    "/queues/{queue}/resume",
    operation_id="resume_queue",
    response_model=schemas.Queue,
    responses=openapi.answers({}, *_FAILURES),
    openapi_extra=needs(ADMIN),
)
async def resume_queue(request: Request, queue: QueueName) -> Response:
    """Resume a paused queue."""
    return await _change(request, queue, models.QueueChange(paused=False))


@router.post(
    "/queues/{queue}/purge",
    operation_id="purge_queue",
    response_model=schemas.Purged,
    responses=openapi.answers({}, *_FAILURES),
    openapi_extra=needs(ADMIN),
)
async def purge_queue(request: Request, queue: QueueName) -> Response:
    """Cancel the jobs of a queue that are ready to run (`pending`); with `more`, some are left: repeat the request."""
    cancelled, more = await context_of(request).store.purge_queue(queue, within_s=_PURGE_S)
    return schemas.json_response({"cancelled": cancelled, "more": more})


@router.delete(
    "/queues/{queue}",
    operation_id="delete_queue",
    status_code=204,
    response_class=Response,
    responses=openapi.answers({}, problems.NOT_FOUND, problems.CONFLICT, *_FAILURES),
    openapi_extra=needs(ADMIN),
)
async def delete_queue(request: Request, queue: QueueName) -> Response:
    """Delete an empty queue and its settings."""
    await context_of(request).store.remove_queue(queue)
    return Response(None, 204)


async def _change(request: Request, queue: str, change: models.QueueChange) -> Response:
    changed = await context_of(request).store.change_queue(queue, change)
    return schemas.json_response(schemas.queue_document(changed))
