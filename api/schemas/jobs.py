"""Jobs, as the API returns them."""

import math
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

from api.schemas import plain
from api.schemas.base import Answer, Time, counts_document, time_or_none
from workron import models
from workron.durations import to_seconds
from workron.models import OnConflict, Reason, Status, Until, When
from workron.models.job_fields import DESCRIBED, STORED
from workron.models.retry import Code, RetryPolicy
from workron.store import explain
from workron.times import rfc3339


class DependencyState(Answer):
    job: str
    when: When
    status: Status | None
    """The other job's current status; null once it is deleted."""
    matching: bool
    """Each task of this array waits for the task of its own index in the other."""


class Array(Answer):
    """The tasks of an array job. A task that can't start yet has no job of its own and counts as `pending`."""

    size: int
    max_parallel: int | None
    counts: dict[Status, int]


class Task(Answer):
    """The array to which a task belongs, and its index."""

    array: str
    index: int
    value: str | None


class Concurrency(Answer):
    """Limits how many jobs with this key run concurrently: the limit of the latest job applies."""

    key: str
    limit: int


class Retry(Answer):
    """The job's retry policy; null: the default of the scheduler. Durations are in seconds."""

    delay: float | None
    factor: float | None
    max_delay: float | None
    jitter: float | None


class Unique(Answer):
    """A key that only one job at a time holds, for at most `ttl` seconds."""

    key: str
    until: Until
    on_conflict: OnConflict
    ttl: float


_Plain: Any = plain.model_of("PlainJob", Answer, STORED)


class Job(_Plain):  # type: ignore[misc]  # its base is made from the table of fields
    """A job as stored. Times are RFC 3339 in UTC with three decimals, durations are in seconds."""

    id: str
    status: Status
    created_at: Time
    array: Array | None
    task: Task | None
    progress: float | str | None
    """Progress, as reported by the command."""
    concurrency: Concurrency | None
    unique: Unique | None
    retry: Retry | None
    retry_on_exit: list[Code]
    no_retry_on_exit: list[Code]
    deadline: Time | None
    """The job fails unless it has ended by then."""
    expires: Time | None
    """The job is cancelled unless it has started by then."""
    last_heartbeat: Time | None
    depends_on: list[str]
    """In a list of jobs, here and in `dependencies`, the first 20."""
    dependencies: list[DependencyState]
    dependency_count: int


class Explanation(Answer):
    """Why a job has its current status."""

    id: str
    status: Status
    reason: Reason | None
    sentence: str
    facts: dict[str, Any]
    """The facts of the sentence: names and values depend on the status."""


class JobPage(Answer):
    """Jobs and the cursor of the next page; a page may be short or empty although more follow."""

    data: list[Job]
    next_cursor: str | None


_stored: Final = plain.document_of(STORED)
_described: Final = plain.document_of(DESCRIBED)


def job_document(job: models.Job) -> dict[str, Any]:
    document = {
        "id": job.id,
        "status": job.status,
        **_stored(job),
        "created_at": rfc3339(job.created_at_ms),
        "array": _array(job.array),
        "task": _task(job.task),
        "progress": _progress(job.progress),
        "concurrency": _concurrency(job.concurrency),
        "unique": _unique(job.unique),
        "retry": _retry(job.retry),
        "retry_on_exit": job.retry_on_exit,
        "no_retry_on_exit": job.no_retry_on_exit,
        "deadline": time_or_none(job.deadline_at_ms),
        "expires": time_or_none(job.expires_at_ms),
        "last_heartbeat": time_or_none(job.last_heartbeat_at_ms),
        "depends_on": [dependency.job for dependency in job.dependencies],
        "dependencies": [
            _edge(dependency.job, dependency.when, dependency.status, dependency.matching)
            for dependency in job.dependencies
        ],
        "dependency_count": job.dependency_count,
    }
    if job.error is None:
        document["error"] = _skip_cause(job)
    return document


_NEW: Final[dict[str, Any]] = {
    "id": None,
    "status": None,
    **{field.shown: field.default for field in STORED},
    **dict.fromkeys(name for name in Job.model_fields if name not in _Plain.model_fields),
    "depends_on": (),
    "dependencies": (),
    "dependency_count": 0,
}
"""A new job with default values, in the order of the document."""


def new_job_document(
    job: models.NewJob,
    stored_at_ms: int,
    workflow: str | None = None,
    parents: Mapping[str, Status] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the list entry of a new job; `parents` has the status of each dependency."""
    document = {
        **_NEW,
        "id": job.id,
        "status": first_status(job, stored_at_ms),
        **_described(job),
        "created_at": rfc3339(stored_at_ms),
        "run_at": time_or_none(_due_ms(job, stored_at_ms)),
        "retry_on_exit": job.retry_on_exit,
        "no_retry_on_exit": job.no_retry_on_exit,
        "workflow": workflow,
        "final": job.final,
    }
    if job.concurrency is not None:
        document["concurrency"] = _concurrency(job.concurrency)
    if job.unique is not None:
        document["unique"] = _unique(job.unique)
    if job.retry is not None:
        document["retry"] = _retry(job.retry)
    if job.deadline is not None:
        document["deadline"] = rfc3339(job.deadline.seen_from(stored_at_ms))
    if job.expires is not None:
        document["expires"] = rfc3339(job.expires.seen_from(stored_at_ms))
    if job.depends_on:
        shown = job.depends_on[: models.EDGES_SHOWN]
        document["depends_on"] = [edge.job for edge in shown]
        document["dependencies"] = [_edge(edge.job, edge.when, parents[edge.job], edge.matching) for edge in shown]
        document["dependency_count"] = len(job.depends_on)
    return document


def _edge(job: str, when: When, status: Status | None, matching: bool) -> dict[str, Any]:
    return {"job": job, "when": when, "status": status, "matching": matching}


def _array(array: models.Array | None) -> dict[str, Any] | None:
    if array is None:
        return None
    counts = {**array.counts, Status.PENDING: array.counts[Status.PENDING] + array.rest}
    return {"size": array.size, "max_parallel": array.max_parallel, "counts": counts_document(counts)}


def _concurrency(concurrency: models.Concurrency | None) -> dict[str, Any] | None:
    return None if concurrency is None else {"key": concurrency.key, "limit": concurrency.limit}


def _task(task: models.Task | None) -> dict[str, Any] | None:
    return None if task is None else {"array": task.array, "index": task.index, "value": task.value}


def _unique(unique: models.Unique | None) -> dict[str, Any] | None:
    if unique is None:
        return None
    return {
        "key": unique.key,
        "until": unique.until,
        "on_conflict": unique.on_conflict,
        "ttl": to_seconds(unique.ttl_ms),
    }


def _retry(policy: RetryPolicy | None) -> dict[str, float | None] | None:
    if policy is None:
        return None
    return {
        "delay": to_seconds(policy.delay_ms),
        "factor": policy.factor,
        "max_delay": to_seconds(policy.max_delay_ms),
        "jitter": policy.jitter,
    }


def _progress(said: str | None) -> float | str | None:
    """Return the progress as a number if it is one."""
    with suppress(TypeError, ValueError):
        number = float(said or "")
        return number if math.isfinite(number) and "_" not in (said or "") else said
    return said


def explanation_document(explanation: explain.Explanation) -> dict[str, Any]:
    job = explanation.job
    return {
        "id": job.id,
        "status": job.status,
        "reason": job.reason,
        "sentence": explanation.sentence,
        "facts": dict(explanation.facts),
    }


def _due_ms(job: models.NewJob, stored_at_ms: int) -> int | None:
    return stored_at_ms + job.delay_ms if job.delay_ms else job.run_at_ms


def first_status(job: models.NewJob, stored_at_ms: int) -> Status:
    """Return the status of a new job, assuming that none of its dependencies has ended."""
    if job.depends_on or job.final:
        return Status.BLOCKED
    return Status.SCHEDULED if (_due_ms(job, stored_at_ms) or 0) > stored_at_ms else Status.PENDING


def _skip_cause(job: models.Job) -> str | None:
    """Return which dependency caused a job to be skipped; None for other jobs."""
    if job.status is not Status.SKIPPED or job.caused_by is None:
        return None
    edge = next((edge for edge in job.dependencies if edge.job == job.caused_by), None)
    if edge is None and job.dependency_count > len(job.dependencies):
        return f"skipped because of job {job.caused_by}"
    if edge is None or edge.status is None:
        return f"skipped because of job {job.caused_by}, on which its dependencies depend"
    return f"skipped because job {edge.job} ended as {edge.status}, not as {edge.when}"
