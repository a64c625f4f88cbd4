"""Workers: list, read, drain and forget them."""

from typing import Annotated, Final

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from api import openapi, problems, schemas
from api.auth import queue_rights
from api.auth.callers import ADMIN, READ, WORK, ScopedRoute, caller_of, needs
from api.context import context_of
from api.http import body
from api.worker_calls import bodies
from workron.errors import NotFound
from workron.models.workers import Drain
from workron.specs.workflow import DrainTime

router = APIRouter(route_class=ScopedRoute, tags=["workers"])

_UNKNOWN: Final = (problems.NOT_FOUND, problems.STORE_UNAVAILABLE)


class WorkersQuery(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    limit: Annotated[int, Field(ge=1, le=1000)] = 50
    cursor: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    """`next_cursor` of the previous page."""


@router.get(
    "/workers",
    operation_id="list_workers",
    response_model=schemas.WorkerList,
    responses=openapi.answers({}, problems.VALIDATION, problems.STORE_UNAVAILABLE),
    openapi_extra=needs(READ),
)
async def list_workers(request: Request, query: Annotated[WorkersQuery, Query()]) -> Response:
    """List live workers and those lost within the last hour; at most the 10,000 with the latest heartbeats."""
    queue_rights.use_all_queues(caller_of(request), "workers do not belong to a queue")
    page = await context_of(request).store.workers(limit=query.limit, cursor=query.cursor)
    return schemas.json_response(schemas.list_document(map(schemas.worker_document, page.workers), page.next_cursor))


@router.get(
    "/workers/{worker_id}",
    operation_id="get_worker",
    response_model=schemas.Worker,
    responses=openapi.answers({}, *_UNKNOWN),
    openapi_extra=needs(READ),
)
async def get_worker(request: Request, worker_id: str) -> Response:
    """Return a worker."""
    queue_rights.use_all_queues(caller_of(request), "workers do not belong to a queue")
    return schemas.json_response(schemas.worker_document(await context_of(request).store.worker(worker_id)))


@router.post(
    "/workers/{worker_id}/drain",
    operation_id="drain_worker",
    status_code=202,
    response_model=schemas.Worker,
    responses=openapi.answers({}, problems.VALIDATION, problems.TOO_LARGE, problems.UNSUPPORTED_MEDIA_TYPE, *_UNKNOWN),
    openapi_extra=needs(ADMIN) | openapi.body(DrainTime, required=False),
)
async def drain_worker(request: Request, worker_id: str) -> Response:
    """Drain a worker: it claims no more jobs, lets its jobs finish, and stops. It can't be undone; it may be repeated.

    Jobs still running after the timeout are stopped and released. A worker that has stopped is no longer found.
    """
    context = context_of(request)
    raw = await body.read(request, min(context.settings.max_body, body.MOST_OF_ONE))
    wish = Drain()
    if raw:
        body.require_json(request)
        wish = (await body.parse_many(DrainTime, raw)).wish()
    worker = await context.store.worker(worker_id)  # before the drain: an idle worker ends a moment later
    await context.store.attempts.drain(worker_id, wish)
    return schemas.json_response(schemas.worker_document(worker.asked_to_drain()), 202)


@router.delete(
    "/workers/{worker_id}",
    operation_id="forget_worker",
    status_code=204,
    responses=openapi.answers({204: {"description": "The worker is no longer listed"}}, *_UNKNOWN),
    openapi_extra=needs(ADMIN, WORK),
)
async def forget_worker(request: Request, worker_id: str) -> Response:
    """Remove a stopped worker from the list. A live one reappears with its next heartbeat."""
    store, caller = context_of(request).store, caller_of(request)
    if caller.queues is not None:
        await queue_rights.see_worker(store, caller, worker_id)
    if bodies.is_key(worker_id) or not await store.attempts.leave(worker_id):
        raise NotFound("worker", worker_id)
    return Response(status_code=204)
