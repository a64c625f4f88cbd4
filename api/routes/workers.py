"""Workers: list, read, drain and forget them."""

from typing import Annotated

from fastapi import Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from api import schemas
from api.auth import queue_rights
from api.auth.callers import ADMIN, READ, WORK, caller_of
from api.context import context_of
from api.http.queries import StrictQuery
from api.operations import OPTIONAL, Operations
from api.worker_calls import bodies
from workron.errors import NotFound
from workron.specs.workflow import DrainTime

router = Operations("workers")


class WorkersQuery(StrictQuery):
    limit: Annotated[int, Field(ge=1, le=1000)] = 50
    cursor: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    """`next_cursor` of the previous page."""


@router.operation("GET /workers", READ, schemas.WorkerList)
async def list_workers(request: Request, query: Annotated[WorkersQuery, Query()]) -> Response:
    """List live workers and those lost within the last hour; at most the 10,000 with the latest heartbeats."""
    queue_rights.use_all_queues(caller_of(request), "workers do not belong to a queue")
    page = await context_of(request).store.workers(limit=query.limit, cursor=query.cursor)
    return schemas.json_response(schemas.list_document(map(schemas.worker_document, page.workers), page.next_cursor))


@router.operation("GET /workers/{worker_id}", READ, schemas.Worker)
async def get_worker(request: Request, worker_id: str) -> Response:
    """Return a worker."""
    queue_rights.use_all_queues(caller_of(request), "workers do not belong to a queue")
    return schemas.json_response(schemas.worker_document(await context_of(request).store.worker(worker_id)))


@router.operation("POST /workers/{worker_id}/drain", ADMIN, schemas.Worker, status=202)
async def drain_worker(request: Request, worker_id: str, sent: Annotated[DrainTime, OPTIONAL]) -> Response:
    """Drain a worker: it claims no more jobs, lets its jobs finish, and stops. It can't be undone; it may be repeated.

    Jobs still running after the timeout are stopped and released. A worker that has stopped is no longer found.
    """
    store = context_of(request).store
    worker = await store.worker(worker_id)  # before the drain: an idle worker ends a moment later
    await store.attempts.drain(worker_id, sent.wish())
    return schemas.json_response(schemas.worker_document(worker.asked_to_drain()), 202)


@router.operation(
    "DELETE /workers/{worker_id}",
    (ADMIN, WORK),
    status=204,
    responses={204: {"description": "The worker is no longer listed"}},
)
async def forget_worker(request: Request, worker_id: str) -> Response:
    """Remove a stopped worker from the list. A live one reappears with its next heartbeat."""
    store, caller = context_of(request).store, caller_of(request)
    if caller.queues is not None:
        await queue_rights.see_worker(store, caller, worker_id)
    if bodies.is_key(worker_id) or not await store.attempts.leave(worker_id):
        raise NotFound("worker", worker_id)
    return Response(status_code=204)
