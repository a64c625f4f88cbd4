"""Operations of whole workers: registration, and many reports in one call."""

from dataclasses import replace
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from api import problems, schemas
from api.auth import queue_rights
from api.auth.callers import WORK, caller_of
from api.context import context_of
from api.operations import Operations
from api.worker_calls import bodies, documents
from workron.models import Beat, Claimed, ClaimRequest, Finished, Verdict
from workron.models.exchange import Exchanged, Kept
from workron.models.workers import WorkerState
from workron.times import now_ms

router = Operations("work")

REGISTERED_MS: Final = 90_000
"""Minimum silence after which a registered worker counts as lost: its heartbeat interval is unknown."""


@router.operation("POST /exchange", WORK, documents.Exchange, problems.NOT_FOUND)
async def exchange(request: Request, sent: bodies.NewExchange) -> Response:
    """Report results, release claims and claim more jobs in one call; it does not wait.

    It is safe to repeat: results are identified by their fence, claims by `request_id`.
    """
    context = context_of(request)
    caller = caller_of(request)
    queue_rights.use_queues(caller, sent.claim.queues if sent.claim is not None else ())
    await queue_rights.speak_for(context.store, caller, sent.worker_id)
    reported = [*(result.id for result in sent.results), *(held.id for held in sent.released)]
    unseen = await queue_rights.unseen(request, context.store, reported)
    results = [result.to_result() for result in sent.results if result.id not in unseen]
    if released := [(held.id, held.fence) for held in sent.released if held.id not in unseen]:
        await context.store.attempts.release(released)
    claim = None
    if sent.claim is not None and not context.stopping.is_set():
        part = sent.claim
        # Another inbox than that of parked requests: what is taken back because a poll has ended is not what this gets.
        inbox = f"{context.instance}!"
        about = (sent.worker_id, part.queues, part.limit, part.request_id)
        claim = ClaimRequest(*about, inbox=inbox, begins=part.begins)
    exchanged = Exchanged([], Claimed(), propagating=False)
    if results or claim is not None:
        exchanged = await context.parking.source.exchange(sent.worker_id, results, claim)
    claims = tuple(queue_rights.claimed(context.store, caller, exchanged.claimed.claims))
    answers = iter(exchanged.finished)
    finished = [
        Finished(result.id, Verdict.UNKNOWN, None) if result.id in unseen else next(answers) for result in sent.results
    ]
    exchanged = replace(exchanged, finished=finished, claimed=replace(exchanged.claimed, claims=claims))
    fences = [result.fence for result in sent.results]
    return schemas.json_response(documents.exchange_document(fences, exchanged, context.store.policy.lease_ms))


@router.operation("POST /heartbeats", WORK, documents.Beats, problems.NOT_FOUND)
async def heartbeat(request: Request, sent: bodies.NewHeartbeats) -> Response:
    """Send a worker's heartbeat: renew the leases of all its attempts and return those to stop."""
    context = context_of(request)
    caller = caller_of(request)
    info = sent.worker.to_info(now_ms())
    if caller.queues is not None and "queues" not in sent.worker.model_fields_set:
        info = replace(info, queues=tuple(sorted(caller.queues)))
    queue_rights.use_queues(caller, info.queues)
    await queue_rights.speak_for(context.store, caller, info.id)
    held = [(one.id, one.fence) for one in sent.held]
    unseen = await queue_rights.unseen(request, context.store, [job_id for job_id, _ in held])
    seen = [(job_id, fence) for job_id, fence in held if job_id not in unseen]
    beats = await context.store.attempts.heartbeat(info, seen)
    lost = {fence: Beat.LOST for job_id, fence in held if job_id in unseen}
    beats = replace(beats, attempts={**lost, **beats.attempts})
    return schemas.json_response(documents.beats_document(held, beats, context.store.policy.lease_ms))


@router.operation("POST /outputs", WORK, documents.Outputs)
async def write_outputs(request: Request, sent: bodies.NewOutputs) -> Response:
    """Store output of many attempts."""
    context = context_of(request)
    unseen = await queue_rights.unseen(request, context.store, [one.id for one in sent.data])
    patches = [(one.id, one.fence, one.to_patch()) for one in sent.data if one.id not in unseen]
    kept = iter(await context.store.attempts.write_output(patches) if patches else [])
    states = [Kept.LOST if one.id in unseen else next(kept) for one in sent.data]
    data = [documents.held_document(one.id, one.fence, state) for one, state in zip(sent.data, states, strict=True)]
    return schemas.json_response({"data": data})


@router.operation("POST /workers/register", WORK, schemas.Worker, problems.NOT_FOUND, status=201)
async def register_worker(request: Request, sent: bodies.NewWorker) -> Response:
    """Register a worker. It must then send heartbeats to `POST /workers/{id}/heartbeat`."""
    context = context_of(request)
    info, caller = sent.to_info(now_ms()), caller_of(request)
    if caller.queues is not None:  # it does not say which it serves
        info = replace(info, queues=tuple(sorted(caller.queues)))
    await queue_rights.speak_for(context.store, caller, info.id)
    await context.store.attempts.leave(info.id)  # a wish to drain was for the one that had this id before
    await context.store.attempts.describe(info, _ttl_ms(context.store.policy.lease_ms))
    return schemas.json_response(schemas.worker_document(WorkerState(info, now_ms())), 201)


@router.operation("POST /workers/{worker_id}/heartbeat", WORK, schemas.Worker)
async def heartbeat_worker(request: Request, worker_id: str) -> Response:
    """Send the heartbeat of a registered worker; 404: it is unknown (or forgotten) and must register."""
    context = context_of(request)
    known = await queue_rights.see_worker(context.store, caller_of(request), worker_id)
    await context.store.attempts.describe(known.info, _ttl_ms(context.store.policy.lease_ms))
    return schemas.json_response(schemas.worker_document(await context.store.worker(worker_id)))


def _ttl_ms(lease_ms: int) -> int:
    return max(REGISTERED_MS, 3 * lease_ms)
