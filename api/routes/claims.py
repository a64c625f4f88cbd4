"""Claiming jobs over HTTP."""

import asyncio
import functools
import re
from collections.abc import Sequence
from typing import Annotated, Any, Final

from fastapi import Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from api import problems, schemas
from api.auth import queue_rights
from api.auth.callers import WORK, caller_of, confirm
from api.context import Context, client_left, context_of
from api.http.queries import StrictQuery, WaitSeconds
from api.operations import Operations
from api.worker_calls import bodies, documents
from api.worker_calls.parking import Waiter
from workron.models import DEFAULT_QUEUE, Claim, Outcome, Reason, Result
from workron.runtime.async_tools import end
from workron.specs.fields import QueueName

router = Operations("work")

_PREFERRED_WAIT: Final = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,6})\b", re.IGNORECASE)
_PREFER: Final[dict[str, Any]] = {
    "parameters": [
        {
            "name": "Prefer",
            "in": "header",
            "required": False,
            "description": "`wait=SECONDS` (RFC 7240), instead of `wait`; at most 60.",
            "schema": {"type": "string"},
        }
    ]
}


class NextQuery(StrictQuery):
    worker_id: bodies.WorkerId
    queue: Annotated[list[QueueName], Field(min_length=1, max_length=100)] = Field(
        default_factory=lambda: [DEFAULT_QUEUE]
    )
    """May be repeated, in order of priority."""
    wait: WaitSeconds | None = None
    """How long to wait for a job (seconds, or like `500ms`, `30s`); at most 60 s."""
    request_id: bodies.RequestId | None = None


class CancelsQuery(StrictQuery):
    worker_id: bodies.WorkerId
    wait: WaitSeconds | None = None


@router.operation("POST /claims", WORK, documents.ClaimList, problems.NOT_FOUND, extra=_PREFER)
async def claim_jobs(request: Request, asked: bodies.NewClaims) -> Response:
    """Claim jobs, with `wait` as soon as any are available; the list is empty if there are none."""
    context = context_of(request)
    queue_rights.use_queues(caller_of(request), asked.queues)
    await queue_rights.speak_for(context.store, caller_of(request), asked.worker_id)
    wait_s = _wait(request, asked.wait)
    about = (asked.worker_id, asked.queues, asked.limit, asked.request_id)
    with context.parking.enter(*about, begins=asked.begins) as waiter:
        documents = await _claim(context, request, waiter, wait_s)
    return schemas.json_response({"data": documents})


@router.operation(
    "GET /jobs/next",
    WORK,
    documents.Claim,
    problems.METHOD_NOT_ALLOWED,
    problems.NOT_FOUND,
    responses={204: {"description": "No job is available"}},
    extra=_PREFER,
)
async def next_job(request: Request, query: Annotated[NextQuery, Query()]) -> Response:
    """Claim one job, with `wait` as soon as one is available."""
    if request.scope.get("workron.head"):
        detail = "HEAD would claim a job without returning it; allowed: GET"
        return problems.problem(problems.METHOD_NOT_ALLOWED, detail, headers={"allow": "GET"})
    context = context_of(request)
    queue_rights.use_queues(caller_of(request), query.queue)
    await queue_rights.speak_for(context.store, caller_of(request), query.worker_id)
    with context.parking.enter(query.worker_id, query.queue, 1, query.request_id) as waiter:
        documents = await _claim(context, request, waiter, _wait(request, query.wait))
    headers = {"cache-control": "no-store"}
    return schemas.json_response(documents[0], headers=headers) if documents else Response(None, 204, headers)


@router.operation("GET /cancels", WORK, documents.Cancels, problems.NOT_FOUND)
async def list_cancels(request: Request, query: Annotated[CancelsQuery, Query()]) -> Response:
    """Return the jobs that a worker has to stop, as soon as there are any; heartbeats report them too, later."""
    context = context_of(request)
    await queue_rights.speak_for(context.store, caller_of(request), query.worker_id)
    cancels = await context.while_wanted(request, context.cancels.wait(query.worker_id, query.wait or 0))
    visible = await queue_rights.visible(context.store, caller_of(request), cancels or ())
    return schemas.json_response(documents.cancels_document(visible))


async def _claim(context: Context, request: Request, waiter: Waiter, wait_s: float) -> Sequence[dict[str, Any]]:
    """Return the documents of claims; release them if the client has gone or its key has expired."""
    parking = context.parking
    claims: Sequence[Claim] = ()
    documents: Sequence[dict[str, Any]] = ()
    try:
        claims = await parking.claim(waiter, wait_s, functools.partial(client_left, request))
        if claims:
            await confirm(request)
            documents = await _documents(request, claims)
        if waiter.watching is None:
            waiter.left = await request.is_disconnected()
    except BaseException:
        if claims:
            await asyncio.shield(parking.give_up(waiter))
        raise
    finally:
        await end([waiter.watching] if waiter.watching else [])
    if waiter.left:
        await parking.give_up(waiter)
        return ()
    if claims:
        parking.answered(waiter)
    return documents


async def _documents(request: Request, claims: Sequence[Claim]) -> list[dict[str, Any]]:
    """Return the documents of claims. A job whose document can't be made is reported as failed."""
    context = context_of(request)
    claims = queue_rights.claimed(context.store, caller_of(request), claims)
    jobs = await context.store.jobs([claim.id for claim in claims])
    outcome = Outcome(Reason.SPAWN, error="the stored data of this job can't be read")
    broken = [Result(claim.id, claim.fence, outcome) for claim, job in zip(claims, jobs, strict=True) if job is None]
    if broken:
        await context.parking.source.exchange("", broken, None)
    return [
        documents.claim_document(claim, schemas.job_document(job))
        for claim, job in zip(claims, jobs, strict=True)
        if job is not None
    ]


def _wait(request: Request, wait_s: float | None) -> float:
    if wait_s is not None:
        return wait_s
    preferred = _PREFERRED_WAIT.search(request.headers.get("prefer", ""))
    return min(float(preferred[1]), bodies.LONGEST_WAIT_S) if preferred else 0.0
