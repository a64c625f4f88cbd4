"""The documents returned to workers: models for the OpenAPI document, plain dicts for speed."""

from collections.abc import Sequence
from typing import Any, Final, Literal

from api.schemas import Answer, Job, plain
from workron import models
from workron.durations import to_seconds
from workron.models import Beat, Finished, Status, Verdict, workers
from workron.models.exchange import Exchanged, Kept
from workron.models.job_fields import EXECUTION


class Claim(Job):
    """A job with the right to run one attempt of it until the lease expires."""

    attempt: int
    fence: int
    """Grows with every claim; send it with every report."""
    lease_ms: int
    """Duration of the lease, renewed by heartbeats. It begins with the request for the claim."""
    more: dict[str, Any]
    """Instructions for special jobs; mostly empty."""


class ClaimList(Answer):
    data: list[Claim]


class Ended(Answer):
    """The result of a report: the job's status after it."""

    id: str
    status: Status
    verdict: Literal["accepted", "recorded"]
    """`recorded`: the same report was already accepted."""


class Released(Answer):
    id: str
    status: Status


class AttemptBeat(Answer):
    id: str
    state: Literal["ok", "cancel"]
    """`cancel`: stop the command and report how it ended."""
    lease_ms: int


class HeldBeat(Answer):
    id: str
    fence: int
    state: Beat
    """`cancel`: stop the command and report; `lost`: kill it, its result is not needed."""


class DrainWish(Answer):
    timeout: float | None
    """Seconds for which its jobs may keep running; null: the worker's own setting."""


class Beats(Answer):
    data: list[HeldBeat]
    lease_ms: int
    drain: DrainWish | None
    """A request to drain: the worker claims no more jobs and stops after its last one. Repeated until it has left."""


class HeldOutput(Answer):
    id: str
    fence: int
    state: Kept
    """`lost`: the lease is lost; `full`: no room at present, send it later, or all of it with the result."""


class Outputs(Answer):
    data: list[HeldOutput]


class Held(Answer):
    id: str
    fence: int


class Cancels(Answer):
    data: list[Held]
    heartbeat: bool
    """Whether to send the next heartbeat now: its response has instructions."""


class Parent(Answer):
    id: str
    status: Status | None
    """Null once the job is deleted."""
    name: str | None
    result: Any
    left_out: bool
    """Whether the result was dropped for lack of room."""


class ParentList(Answer):
    data: list[Parent]


class ExchangedResult(Answer):
    id: str
    fence: int
    verdict: Verdict
    status: Status | None


_Execution: Any = plain.model_of("Execution", Answer, EXECUTION)
_execution: Final = plain.document_of(EXECUTION)


class ShortClaim(_Execution):  # type: ignore[misc]  # its base is made from the table of fields
    """All that is needed to run one attempt of a job."""

    id: str
    fence: int
    attempt: int
    lease_ms: int
    queue: str
    more: dict[str, Any]
    """Instructions for special jobs; mostly empty."""


class Exchange(Answer):
    results: list[ExchangedResult]
    claims: list[ShortClaim]
    more: bool
    """More jobs may be available: repeat the request at once."""
    spent: bool
    """This request returned claims before and no longer holds any: make a new request."""
    next_due: float | None
    """Seconds until the next scheduled job; null if there is none."""
    lease_ms: int


def claim_document(claim: models.Claim, job: dict[str, Any]) -> dict[str, Any]:
    attempt = {"attempt": claim.attempt, "fence": claim.fence, "lease_ms": claim.lease_ms, "more": claim.more}
    return job | attempt


def parent_document(parent: models.Parent) -> dict[str, Any]:
    return {
        "id": parent.id,
        "status": parent.status,
        "name": parent.name,
        "result": parent.result,
        "left_out": parent.left_out,
    }


def ended_document(finished: Finished) -> dict[str, Any]:
    return {"id": finished.id, "status": finished.status, "verdict": finished.verdict}


def held_document(job_id: str, fence: int, state: str | None = None) -> dict[str, Any]:
    return {"id": job_id, "fence": fence, **({"state": state} if state is not None else {})}


def beats_document(held: Sequence[tuple[str, int]], beats: workers.Beats, lease_ms: int) -> dict[str, Any]:
    wish = beats.drain
    timeout_s = None if wish is None else to_seconds(wish.timeout_ms)
    return {
        "data": [held_document(job_id, fence, beats.attempts[fence]) for job_id, fence in held],
        "lease_ms": lease_ms,
        "drain": None if wish is None else {"timeout": timeout_s},
    }


def cancels_document(cancels: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """Instructions for a worker; a cancel without a job only triggers its heartbeat."""
    jobs = [held_document(job_id, fence) for job_id, fence in cancels if job_id]
    return {"data": jobs, "heartbeat": len(jobs) < len(cancels)}


def exchange_document(fences: Sequence[int], exchanged: Exchanged, lease_ms: int) -> dict[str, Any]:
    claimed = exchanged.claimed
    return {
        "results": [
            {"id": finished.id, "fence": fence, "verdict": finished.verdict, "status": finished.status}
            for fence, finished in zip(fences, exchanged.finished, strict=True)
        ],
        "claims": [_short_claim(claim) for claim in claimed.claims],
        "more": claimed.more,
        "spent": claimed.answered and not claimed.claims,
        "next_due": to_seconds(claimed.next_due_in_ms),
        "lease_ms": lease_ms,
    }


def _short_claim(claim: models.Claim) -> dict[str, Any]:
    return {
        "id": claim.id,
        "fence": claim.fence,
        "attempt": claim.attempt,
        "lease_ms": claim.lease_ms,
        "queue": claim.queue,
        **_execution(claim),
        "more": claim.more,
    }
