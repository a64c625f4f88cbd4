"""Setting how many jobs may wait in a queue."""

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from api import body, openapi, problems, schemas
from api.bodies import QueueChange
from api.context import context_of
from api.fields import QUEUE_PATTERN

router = APIRouter(tags=["system"])


@router.patch(
    "/queues/{queue}",
    operation_id="change_queue",
    response_model=schemas.Queue,
    responses=openapi.answers(
        {},
        problems.TOO_LARGE,
        problems.UNSUPPORTED_MEDIA_TYPE,
        problems.VALIDATION,
        problems.STORE_UNAVAILABLE,
    ),
    openapi_extra=openapi.body(QueueChange),
)
async def change_queue(request: Request, queue: Annotated[str, Path(pattern=QUEUE_PATTERN)]) -> Response:
    """Set how many jobs may wait in a queue; it need not hold jobs yet."""
    context = context_of(request)
    change = await body.required(QueueChange, request, context.settings.max_body)
    changed = await context.store.limit_queue(queue, change.max_pending)
    return schemas.json_response(schemas.queue_document(changed))
