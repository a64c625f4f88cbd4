"""Reports of workers: heartbeats, output and results of attempts. They are never shed."""

from contextlib import suppress
from typing import Annotated, Any, Final

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from api import problems, schemas
from api.auth import queue_rights
from api.auth.callers import WORK
from api.context import Context, context_of
from api.http import body
from api.http.paths import JobId
from api.http.queries import StrictQuery
from api.operations import OF_BODIES, OPTIONAL, Operations
from api.worker_calls import bodies, documents
from workron.errors import Conflict, LeaseLost, NotFound, NotRunning, StoreFull
from workron.models import Beat, Finished, Outcome, OutputPatch, Result, Status, Unfenced, Verdict
from workron.models.exchange import Kept

router = Operations("work")

_NOT_HELD: Final = (problems.NOT_RUNNING, problems.LEASE_LOST)


class OutputQuery(StrictQuery):
    fence: bodies.QueryFence
    offset: bodies.QueryOffset = 0
    """Offset in the stored output, which has the first 128 KiB followed by the last 128 KiB."""
    total: bodies.QueryCount | None = None
    """Total of bytes written so far; by default the end of these bytes."""


@router.operation("POST /jobs/{job_id}/heartbeat", WORK, documents.AttemptBeat, *_NOT_HELD)
async def heartbeat_job(request: Request, job_id: JobId, sent: Annotated[bodies.JobBeat, OPTIONAL]) -> Response:
    """Renew the lease of one attempt, report its progress, and return whether to stop it."""
    context = context_of(request)
    fence = bodies.fence_of(sent.fence, context.settings.unfenced)
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


@router.operation("POST /jobs/{job_id}/done", WORK, documents.Ended, *_NOT_HELD)
async def finish_job(request: Request, job_id: JobId, sent: Annotated[bodies.Report, OPTIONAL]) -> Response:
    """Report that an attempt succeeded. A repeat returns what was recorded."""
    return await _finish(request, job_id, sent, sent.success())


@router.operation("POST /jobs/{job_id}/fail", WORK, documents.Ended, *_NOT_HELD)
async def fail_job(request: Request, job_id: JobId, sent: Annotated[bodies.FailureReport, OPTIONAL]) -> Response:
    """Report that an attempt failed; the scheduler decides whether to retry. A repeat changes nothing."""
    return await _finish(request, job_id, sent, sent.failure())


@router.operation("POST /jobs/{job_id}/release", WORK, documents.Released, *_NOT_HELD)
async def release_job(request: Request, job_id: JobId, sent: Annotated[bodies.MaybeFenced, OPTIONAL]) -> Response:
    """Release an unfinished attempt: the job returns to the head of its queue, and the attempt does not count."""
    context = context_of(request)
    fence = bodies.fence_of(sent.fence, context.settings.unfenced)
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


@router.operation(
    "POST /jobs/{job_id}/output",
    WORK,
    None,
    *_NOT_HELD,
    *OF_BODIES,
    problems.STORE_FULL,
    status=204,
    responses={204: {"description": "Stored"}},
    extra=_RAW_BODY,
)
async def write_output(request: Request, job_id: JobId, query: Annotated[OutputQuery, Query()]) -> Response:
    """Store output of an attempt: the bytes of the body, of any content type."""
    context = context_of(request)
    patch = bodies.output_patch(query.offset, await body.read(request, bodies.STORED), query.total)
    await queue_rights.see_jobs(request, context.store, job_id)
    [kept] = await context.store.attempts.write_output([(job_id, query.fence, patch)])
    if kept is Kept.LOST:
        raise await _why_lost(context, job_id, query.fence)
    if kept is Kept.FULL:
        raise StoreFull("the store has no room for output", retry_after_s=5.0)
    return Response(None, 204)


async def _finish(request: Request, job_id: str, report: bodies.Report, outcome: Outcome) -> Response:
    context = context_of(request)
    await queue_rights.see_jobs(request, context.store, job_id)
    fence = bodies.fence_of(report.fence, context.settings.unfenced)
    patch = report.output.to_patch() if report.output else None
    exchanged = await context.parking.source.exchange("", [Result(job_id, fence, outcome, patch)], None)
    [finished] = exchanged.finished
    if finished.verdict not in (Verdict.ACCEPTED, Verdict.RECORDED):
        raise _refusal(finished, fence)
    return schemas.json_response(documents.ended_document(finished))


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
