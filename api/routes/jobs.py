"""Jobs: list, read, cancel, retry and delete them."""

import re
from typing import Annotated, Any, Final, Self

from fastapi import Query
from pydantic import Field, ModelWrapValidatorHandler, PrivateAttr, model_validator
from starlette.requests import Request
from starlette.responses import Response

from api import problems, schemas
from api.auth import queue_rights
from api.auth.callers import READ, SUBMIT, WORK, caller_of
from api.context import context_of
from api.http.paths import JobId
from api.http.queries import StrictQuery, WaitSeconds
from api.operations import OPTIONAL, Operations
from api.routes.output_stream import FollowedEvents, FollowedOutput, Follower, StoredOutput
from api.worker_calls import documents
from workron.errors import InvalidRequest, NotFound
from workron.models import Cancelled, JobFilter, Position, Status, output_stream
from workron.models.job_fields import QUEUE_PATTERN
from workron.specs import plain
from workron.specs.fields import ID_PATTERN
from workron.specs.job_fields import Tag
from workron.specs.workflow import Cancel, Steering

router = Operations("jobs")

_METADATA: Final = "metadata."


_PlainFilters: Any = plain.filters(StrictQuery)


class ListQuery(_PlainFilters):  # type: ignore[misc]  # its base is made from the table of fields
    status: Status | None = None
    queue: Annotated[str, Field(pattern=QUEUE_PATTERN)] | None = None
    workflow: Annotated[str, Field(pattern=ID_PATTERN)] | None = None
    array: Annotated[str, Field(pattern=ID_PATTERN)] | None = None
    """Tasks of this job, in order."""
    tag: Annotated[list[Tag], Field(max_length=50)] = Field(default_factory=list)
    """May be repeated: only jobs with all of these tags."""
    limit: Annotated[int, Field(ge=1, le=1000)] = 50
    cursor: Annotated[str, Field(min_length=1, max_length=4000)] | None = None
    """`next_cursor` of the previous page."""
    _metadata: dict[str, str] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _take_metadata(cls, data: dict[str, Any], handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Take out the parameters whose names are `metadata.` and any key."""
        query = handler({name: value for name, value in data.items() if not name.startswith(_METADATA)})
        query._metadata = {
            name.removeprefix(_METADATA): value if isinstance(value, str) else value[-1]
            for name, value in data.items()
            if name.startswith(_METADATA)
        }
        return query

    @property
    def where(self) -> JobFilter:
        return JobFilter(
            self.status,
            self.queue,
            workflow=self.workflow,
            array=self.array,
            tags=self.tag,
            metadata=self._metadata,
            fields={name: value for name, value in plain.wanted(self).items() if value is not None},
        )


class WaitQuery(StrictQuery):
    wait: WaitSeconds = 0
    """How long to wait for the end of the job (seconds, or like `500ms`, `30s`); at most 60 s."""


class OutputQuery(StrictQuery):
    offset: Annotated[int, Field(ge=0, le=2**53)] = 0
    """First byte to send, counted from the beginning of all output."""
    follow: bool = False
    """Keep sending new output until the job has ended."""
    position: Annotated[str, Field(pattern=output_stream.POSITION_PATTERN)] | None = None
    """With `follow`, instead of `offset`: the `id` of the event to continue after; `0:0`: all stored output."""


@router.operation("GET /jobs", READ, schemas.JobPage)
async def list_jobs(request: Request, query: Annotated[ListQuery, Query()]) -> Response:
    """List jobs, newest first.

    The parameter `metadata.KEY=VALUE` selects jobs with this metadata: a string, or the JSON of any other value.
    """
    caller = caller_of(request)
    if query.queue is None:
        queue_rights.use_all_queues(caller, "set one with `queue`")
    else:
        queue_rights.use_queues(caller, [query.queue])
    page = await context_of(request).store.list_jobs(query.where, limit=query.limit, cursor=query.cursor)
    return schemas.json_response(schemas.list_document(map(schemas.job_document, page.jobs), page.next_cursor))


@router.operation("GET /jobs/{job_id}", READ, schemas.Job)
async def get_job(request: Request, job_id: JobId, query: Annotated[WaitQuery, Query()]) -> Response:
    """Return a job, with `wait` once it has ended."""
    context = context_of(request)
    job = await context.store.job(job_id)
    if query.wait and not job.status.terminal and caller_of(request).sees(job.queue):
        job = await context.while_wanted(request, context.store.wait(job_id, query.wait)) or job
    if not caller_of(request).sees(job.queue):  # it may have been moved meanwhile
        raise NotFound("job", job_id)
    return schemas.json_response(schemas.job_document(job))


@router.operation(
    "GET /jobs/{job_id}/output",
    READ,
    responses={
        200: {
            "description": "Output of the latest attempt; one line marks a dropped middle part",
            "content": {
                "text/plain": {"schema": {"type": "string"}},
                output_stream.CONTENT_TYPE: {"schema": {"type": "string"}},
            },
            "headers": {
                "X-Workron-Output-Total": {
                    "description": "Bytes written so far; not sent with `follow`",
                    "schema": {"type": "integer", "minimum": 0},
                }
            },
        }
    },
)
async def get_output(request: Request, job_id: JobId, query: Annotated[OutputQuery, Query()]) -> Response:
    """Return a job's output, with `follow` as it is written; it is complete once the job has ended.

    With `follow` and `Accept: text/event-stream` it is sent as events. The `id` of each is the position after it:
    send it as `position` or `Last-Event-ID` to resume a broken stream there. `output` has JSON with `fence` (the
    attempt), `from`, `to` (bytes of all its output) and `base64`; `cut` gives bytes that were dropped; `end` is the
    last event, missing in a broken stream. In plain text the end looks like a broken stream.
    """
    context = context_of(request)
    await queue_rights.see_jobs(request, context.store, job_id)
    output = await context.store.output(job_id)
    if not query.follow or request.scope.get("workron.head"):
        return StoredOutput(output, query.offset)
    follower = Follower(context, job_id, _position(request, query), query.offset)
    wanted = request.headers.get("accept", "")
    return (FollowedEvents if output_stream.CONTENT_TYPE in wanted.lower() else FollowedOutput)(context, follower)


@router.operation("GET /jobs/{job_id}/parents", (READ, WORK), documents.ParentList)
async def get_parents(request: Request, job_id: JobId) -> Response:
    """Return the final status and results of the job's dependencies (at most 4 MiB of results)."""
    store = context_of(request).store
    await queue_rights.see_jobs(request, store, job_id)
    parents = await store.attempts.parents(job_id)
    return schemas.json_response({"data": list(map(documents.parent_document, parents))})


@router.operation("GET /jobs/{job_id}/explain", READ, schemas.Explanation)
async def explain_job(request: Request, job_id: JobId) -> Response:
    """Explain in one sentence why a job has its status, and what must happen next."""
    store = context_of(request).store
    await queue_rights.see_jobs(request, store, job_id)
    explanation = await store.explain(job_id)
    return schemas.json_response(schemas.explanation_document(explanation))


@router.operation(
    "POST /jobs/{job_id}/cancel",
    SUBMIT,
    schemas.Job,
    problems.CONFLICT,
    problems.UNIQUE_CONFLICT,
    responses={202: {"description": "The running command is being stopped", "model": schemas.Job}},
)
async def cancel_job(request: Request, job_id: JobId, sent: Annotated[Cancel, OPTIONAL]) -> Response:
    """Cancel a job: immediately if it is waiting, by stopping its command if it is running."""
    store = context_of(request).store
    await queue_rights.see_jobs(request, store, job_id)
    if sent.cascade:
        queue_rights.use_all_queues(caller_of(request), "cascade includes jobs of any queue")
    if (indexes := sent.indexes()) is not None:
        counted = await store.cancel_tasks(job_id, indexes)
        cancelled = Cancelled.CANCELLING if "cancelling" in counted else Cancelled.CANCELLED
    else:
        cancelled = await store.cancel(job_id, sent.run, cascade=sent.cascade)
    document = schemas.job_document(await store.job(job_id))
    return schemas.json_response(document, 202 if cancelled is Cancelled.CANCELLING else 200)


@router.operation("POST /jobs/{job_id}/retry", SUBMIT, schemas.Job, problems.CONFLICT, problems.UNIQUE_CONFLICT)
async def retry_job(request: Request, job_id: JobId, sent: Annotated[Steering, OPTIONAL]) -> Response:
    """Start a new run of a failed, cancelled or skipped job."""
    store = context_of(request).store
    await queue_rights.see_jobs(request, store, job_id)
    if (indexes := sent.indexes()) is not None:
        await store.retry_tasks(job_id, indexes)
    else:
        await store.retry(job_id, sent.run)
    return schemas.json_response(schemas.job_document(await store.job(job_id)))


@router.operation(
    "DELETE /jobs/{job_id}",
    SUBMIT,
    None,
    problems.CONFLICT,
    status=204,
    responses={204: {"description": "The job is deleted"}},
)
async def delete_job(request: Request, job_id: JobId) -> Response:
    """Delete a job that has ended, with its output; an array with its tasks."""
    store = context_of(request).store
    await queue_rights.see_jobs(request, store, job_id)
    await store.delete(job_id)
    return Response(status_code=204)


def _position(request: Request, query: OutputQuery) -> Position | None:
    """Return the position at which to resume: a reconnecting browser sends it in a header."""
    last = request.headers.get("last-event-id", "")
    if last and not re.fullmatch(output_stream.POSITION_PATTERN, last):
        raise InvalidRequest("Last-Event-ID is not the id of an event of this stream", field="Last-Event-ID")
    text = last or query.position
    return Position(*map(int, text.split(":"))) if text else None
