"""Workflows, as the API returns them."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from api.schemas.base import Answer, Time, counts_document
from api.schemas.jobs import Job, first_status, job_document, new_job_document
from workron import models
from workron.models import OnFailure, Status, Stopped
from workron.times import rfc3339

WorkflowStatus = Literal["running", "done", "failed"]


class Workflow(Answer):
    """A workflow and its first 1,000 jobs, or 4 MB of them; `GET /jobs?workflow=` lists all."""

    id: str
    name: str | None
    status: WorkflowStatus
    """`failed`: all jobs have ended, at least one of them failed or cancelled."""
    created_at: Time
    size: int
    counts: dict[Status, int]
    on_failure: OnFailure
    stopped: Stopped | None
    """Why unstarted jobs were cancelled: the workflow was cancelled, or one of its jobs failed."""
    stopped_by: str | None
    """Id of the failed job."""
    final: str | None
    """The job that runs after all others have ended."""
    jobs: list[Job]


def workflow_document(workflow: models.Workflow, jobs: Sequence[models.Job]) -> dict[str, Any]:
    return {
        "id": workflow.id,
        "name": workflow.name,
        "status": workflow_status(workflow),
        "created_at": rfc3339(workflow.created_at_ms),
        "size": workflow.size,
        "counts": counts_document(workflow.counts),
        "on_failure": workflow.on_failure,
        "stopped": workflow.stopped,
        "stopped_by": workflow.stopped_by,
        "final": workflow.final,
        "jobs": [job_document(job) for job in jobs],
    }


def new_workflow_document(
    submitted: models.Submitted,
    name: str | None,
    on_failure: OnFailure,
    jobs: Sequence[models.NewJob],
    stored_at_ms: int,
    most: int,
) -> dict[str, Any]:
    """Return the document of a new workflow, with its first `most` jobs."""
    states = {job.id: first_status(job, stored_at_ms) for job in jobs}
    counts = Counter(states.values())
    return {
        "id": submitted.workflow,
        "name": name,
        "status": "running",
        "created_at": rfc3339(stored_at_ms),
        "size": len(jobs),
        "counts": {status.value: counts[status] for status in Status},
        "on_failure": on_failure,
        "stopped": None,
        "stopped_by": None,
        "final": next((job.id for job in jobs if job.final), None),
        "jobs": [new_job_document(job, stored_at_ms, submitted.workflow, states) for job in jobs[:most]],
    }


def workflow_status(workflow: models.Workflow) -> WorkflowStatus:
    """Return the status of the workflow; skipped jobs alone are not a failure: they may be failure handlers."""
    if not workflow.finished:
        return "running"
    bad = sum(workflow.counts.get(status, 0) for status in (Status.FAILED, Status.CANCELLED))
    return "failed" if bad else "done"
