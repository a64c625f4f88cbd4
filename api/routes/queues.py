"""Queues: list, limit, pause, purge and delete them."""

from typing import Annotated, Final

from fastapi import Path, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from api import problems, schemas
from api.auth import queue_rights
from api.auth.callers import ADMIN, READ, WORK, caller_of
from api.context import context_of
from api.http.queries import StrictQuery
from api.operations import Operations
from workron import models
from workron.models.job_fields import QUEUE_PATTERN
from workron.specs.workflow import QueueChange

router = Operations("queues")

QueueName = Annotated[str, Path(pattern=QUEUE_PATTERN)]
_PURGE_S: Final = 10.0
"""Maximum duration of a purge within one request."""


class QueuesQuery(StrictQuery):
    name: Annotated[list[Annotated[str, Field(pattern=QUEUE_PATTERN)]], Field(max_length=100)] = Field(
        default_factory=list
    )
    """May be repeated: only these queues, if they exist."""
    limit: Annotated[int, Field(ge=1, le=1000)] = 50
    cursor: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    """`next_cursor` of the previous page."""


@router.operation("GET /queues", (READ, WORK), schemas.QueueList)
async def list_queues(request: Request, query: Annotated[QueuesQuery, Query()]) -> Response:
    """List queues by name, with the number of jobs in each status."""
    caller = caller_of(request)
    queue_rights.use_queues(caller, query.name)
    among = query.name or caller.queues
    page = await context_of(request).store.queue_page(query.limit, query.cursor or "", among)
    return schemas.json_response(schemas.list_document(map(schemas.queue_document, page.queues), page.next_cursor))


@router.operation("PATCH /queues/{queue}", ADMIN, schemas.Queue)
async def change_queue(request: Request, queue: QueueName, sent: QueueChange) -> Response:
    """Set how many jobs of a queue may wait, run, or start per duration; the queue need not exist yet."""
    return await _change(request, queue, sent.to_change())


@router.operation("POST /queues/{queue}/pause", ADMIN, schemas.Queue)
async def pause_queue(request: Request, queue: QueueName) -> Response:
    """Stop starting jobs of a queue; running jobs continue. The queue need not exist yet."""
    return await _change(request, queue, models.QueueChange(paused=True))


@router.operation("POST /queues/{queue}/resume", ADMIN, schemas.Queue)
async def resume_queue(request: Request, queue: QueueName) -> Response:
    """Resume a paused queue."""
    return await _change(request, queue, models.QueueChange(paused=False))


@router.operation("POST /queues/{queue}/purge", ADMIN, schemas.Purged)
async def purge_queue(request: Request, queue: QueueName) -> Response:
    """Cancel the jobs of a queue that are ready to run (`pending`); with `more`, some are left: repeat the request."""
    cancelled, more = await context_of(request).store.purge_queue(queue, within_s=_PURGE_S)
    return schemas.json_response({"cancelled": cancelled, "more": more})


@router.operation("DELETE /queues/{queue}", ADMIN, None, problems.NOT_FOUND, problems.CONFLICT, status=204)
async def delete_queue(request: Request, queue: QueueName) -> Response:
    """Delete an empty queue and its settings."""
    await context_of(request).store.remove_queue(queue)
    return Response(None, 204)


async def _change(request: Request, queue: str, change: models.QueueChange) -> Response:
    changed = await context_of(request).store.change_queue(queue, change)
    return schemas.json_response(schemas.queue_document(changed))
