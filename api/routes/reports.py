"""Reports of workers: heartbeats, output and results of attempts. They are never shed."""

from contextlib import suppress
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from api import openapi, problems, schemas
from api.auth import queue_rights
from api.auth.callers import WORK, ScopedRoute, needs
from api.context import Context, context_of
from api.http import body
from api.http.queries import StrictQuery
from api.worker_calls import bodies, documents
from workron import ids
from workron.errors import Conflict, LeaseLost, NotFound, NotRunning, StoreFull
from workron.models import Beat, Finished, Outcome, OutputPatch, Result, Status, Unfenced, Verdict
from workron.models.exchange import Kept

router = APIRouter(route_class=ScopedRoute, tags=["work"])

_FAILURES: Final = (
    problems.NOT_FOUND,
    problems.NOT_RUNNING,
    problems.LEASE_LOST,
    problems.TOO_LARGE,
    problems.UNSUPPORTED_MEDIA_TYPE,
    problems.VALIDATION,
    problems.STORE_UNAVAILABLE,
)


class OutputQuery(StrictQuery):
    fence: bodies.QueryFence
    offset: bodies.QueryOffset = 0
    """Offset in the stored output, which has the first 128 KiB followed by the last 128 KiB."""
    total: bodies.QueryCount | None = None
    """Total of bytes written so far; by default the end of these bytes."""


@router.post(
    "/jobs/{job_id}/heartbeat",
    operation_id="heartbeat_job",
    response_model=documents.AttemptBeat,
    responses=openapi.answers({}, *_FAILURES),
    openapi_extra=needs(WORK) | openapi.body(bodies.JobBeat, required=False),
)
async def heartbeat_job(request: Request, job_id: str) -> Response:
    """Renew the lease of one attempt, report its progress, and return whether to stop it."""
    context = context_of(request)
    sent = await body.optional(bodies.JobBeat, request, context.settings.max_body)
    fence = _meant(context, job_id, sent)
    await queue_rights.see_jobs(request, context.store, job_id)
    beat = await context.store.attempts.beat(job_id, fence)
    if beat is not Beat.LOST and sent.begins and sent.fence is not None:
        await context.store.attempts.begin(job_id, sent.fence)
    if beat is Beat.LOST:
        raise await _why_lost(context, job_id, fence)
    if sent.progress is not None:
        with suppress(StoreFull):  # the lease is renewed all the same
            await context.store.attempts.write_output(
                [(job_id, fence, OutputPatch(0, b"", 0, bodies.said(sent.progress)))]
            )
    answer = {"id": job_id, "state": beat, "lease_ms": context.store.policy.lease_ms}
    return schemas.json_response(answer)


@router.post(
    "/jobs/{job_id}/done",
    operation_id="finish_job",
    response_model=documents.Ended,
    responses=openapi.answers({}, *_FAILURES),
    openapi_extra=needs(WORK) | openapi.body(bodies.Report, required=False),
)
async def finish_job(request: Request, job_id: str) -> Response:
    """Report that an attempt succeeded. A repeat returns what was recorded."""
    context = context_of(request)
    report = await body.optional(bodies.Report, request, context.settings.max_body)
    return await _finish(request, job_id, report, report.success())


@router.post(
    "/jobs/{job_id}/fail",
    operation_id="fail_job",
    response_model=documents.Ended,
    responses=openapi.answers({}, *_FAILURES),
    openapi_extra=needs(WORK) | openapi.body(bodies.FailureReport, required=False),
)
async def fail_job(request: Request, job_id: str) -> Response:
    """Report that an attempt failed; the scheduler decides whether to retry. A repeat changes nothing."""
    context = context_of(request)
    report = await body.optional(bodies.FailureReport, request, context.settings.max_body)
    return await _finish(request, job_id, report, report.failure())


@router.post(
    "/jobs/{job_id}/release",
    operation_id="release_job",
    response_model=documents.Released,
    responses=openapi.answers({}, *_FAILURES),
    openapi_extra=needs(WORK) | openapi.body(bodies.MaybeFenced, required=False),
)
async def release_job(request: Request, job_id: str) -> Response:
    """Release an unfinished attempt: the job returns to the head of its queue, and the attempt does not count."""
    context = context_of(request)
    fence = await _fence(request, context, job_id)
    await queue_rights.see_jobs(request, context.store, job_id)
    [status] = await context.store.attempts.release([(job_id, fence)])
    if status is None:
        raise await _why_lost(context, job_id, fence)
    return schemas.json_response({"id": job_id, "status": status})


_RAW_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.post(
    "/jobs/{job_id}/output",
    operation_id="write_output",
    status_code=204,
    responses=openapi.answers(
        {204: {"description": "Stored"}},
        *_FAILURES,
        problems.STORE_FULL,
    ),
    openapi_extra=needs(WORK) | _RAW_BODY,
)
async def write_output(request: Request, job_id: str, query: Annotated[OutputQuery, Query()]) -> Response:
    """Store output of an attempt: the bytes of the body, of any content type."""
    context = context_of(request)
    patch = bodies.output_patch(query.offset, await body.read(request, bodies.STORED), query.total)
    await queue_rights.see_jobs(request, context.store, _checked(job_id))
    [kept] = await context.store.attempts.write_output([(job_id, query.fence, patch)])
    if kept is Kept.LOST:
        raise await _why_lost(context, job_id, query.fence)
    if kept is Kept.FULL:
        raise StoreFull("the store has no room for output", retry_after_s=5.0)
    return Response(None, 204)


async def _finish(request: Request, job_id: str, report: bodies.Report, outcome: Outcome) -> Response:
    context = context_of(request)
    await queue_rights.see_jobs(request, context.store, _checked(job_id))
    fence = bodies.fence_of(report.fence, context.settings.unfenced)
    patch = report.output.to_patch() if report.output else None
    exchanged = await context.parking.source.exchange("", [Result(job_id, fence, outcome, patch)], None)
    [finished] = exchanged.finished
    if finished.verdict not in (Verdict.ACCEPTED, Verdict.RECORDED):
        raise _refusal(finished, fence)
    return schemas.json_response(documents.ended_document(finished))


async def _fence(request: Request, context: Context, job_id: str) -> int | Unfenced:
    return _meant(context, job_id, await body.optional(bodies.MaybeFenced, request, context.settings.max_body))


def _meant(context: Context, job_id: str, meant: bodies.MaybeFenced) -> int | Unfenced:
    _checked(job_id)
    return bodies.fence_of(meant.fence, context.settings.unfenced)


def _checked(job_id: str) -> str:
    if not ids.is_id(job_id):
        raise NotFound("job", job_id)
    return job_id


async def _why_lost(context: Context, job_id: str, fence: int | Unfenced) -> Exception:
    job = await context.store.job(job_id)  # NotFound, where that is why
    return _refusal(Finished(job_id, Verdict.LEASE_LOST, job.status), fence)


def _refusal(finished: Finished, fence: int | Unfenced) -> Exception:
    job_id = finished.id
    if finished.verdict is Verdict.UNKNOWN:
        return NotFound("job", job_id)
    if finished.status is None:
        return Conflict(f"the stored data of job {job_id} can't be read")
    if finished.status is not Status.RUNNING:
        return NotRunning(f"job {job_id} is not running: it is {finished.status}")
    if isinstance(fence, int):
        return LeaseLost(f"job {job_id} runs under another fence than {fence}: its lease was lost or released")
    return LeaseLost(f"a claim of job {job_id} was lost or released: send the fence to identify the claim")
