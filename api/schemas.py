"""The documents that the API answers: pydantic models for the OpenAPI document, plain dicts for speed.

A page of 10,000 jobs is made by the functions here and orjson; the models only describe it, and the tests hold each
answer against its model.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from workron import models
from workron.fleet import WorkerState, WorkerStatus
from workron.models import Reason, Status, When
from workron.times import rfc3339

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
WorkflowStatus = Literal["running", "done", "failed"]


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class DependencyState(Answer):
    job: str
    when: When
    status: Status | None
    """The other job's present status; null once it is no longer stored."""


class Job(Answer):
    """A job as stored. Times are RFC 3339 in UTC with three decimals, lengths of time are seconds."""

    id: str
    run: int
    """1, and one more with each retry by an operator."""
    status: Status
    reason: Reason | None
    """Why the job, or its last attempt, ended as it did."""
    command: str | None
    argv: list[str] | None
    name: str | None
    queue: str
    priority: int
    attempts: int
    """Attempts started in this run."""
    max_attempts: int
    timeout: float | None
    env: dict[str, str]
    cwd: str | None
    created_at: Time
    run_at: Time | None
    started_at: Time | None
    finished_at: Time | None
    last_heartbeat: Time | None
    cancel_requested_at: Time | None
    worker: str | None
    exit_code: int | None
    """Null when a signal ended the command."""
    signal: int | None
    error: str | None
    """What went wrong, with the end of the output."""
    depends_on: list[str]
    dependencies: list[DependencyState]
    workflow: str | None


class JobPage(Answer):
    """Jobs, and the cursor of the page behind; a page may be short, or empty, although more follow."""

    data: list[Job]
    next_cursor: str | None


class Workflow(Answer):
    """A workflow and its first 1,000 jobs; the others are found by `GET /jobs?workflow=`."""

    id: str
    name: str | None
    status: WorkflowStatus
    """`failed`: every job has ended, and one of them as failed or cancelled."""
    created_at: Time
    size: int
    counts: dict[Status, int]
    jobs: list[Job]


class Queue(Answer):
    name: str
    counts: dict[Status, int]
    max_pending: int | None
    """Most jobs that may wait in it, its own limit or the one for all queues; null: any number."""


class QueueList(Answer):
    data: list[Queue]
    next_cursor: str | None


class Worker(Answer):
    """A worker as it described itself with its last heartbeat."""

    id: str
    host: str
    pid: int
    version: str
    queues: list[str]
    slots: int
    running: int
    """Slots in use."""
    jobs: list[str]
    """Ids of the jobs that it holds, the longest first; at most 100 of them."""
    started_at: Time
    last_heartbeat: Time
    state: WorkerStatus
    """`draining`: it claims no more, and ends with its jobs. `lost`: it was silent for longer than its lease; after
    an hour it is forgotten."""
    exec_addr: str | None
    resources: dict[str, int]
    tags: list[str]


class WorkerList(Answer):
    """Workers by id, and the cursor of the page behind."""

    data: list[Worker]
    next_cursor: str | None


class Alive(Answer):
    status: Literal["ok"]


class Server(Answer):
    """The Redis server as it describes itself; null where it is not allowed to tell."""

    product: str
    version: str
    appendonly: bool | None
    appendfsync: str | None
    maxmemory_policy: str | None
    used_memory: int | None
    maxmemory: int | None


class Reaper(Answer):
    last_pass_age: float | None
    """Seconds since any reaper's last pass; null if there never was one."""


class Health(Answer):
    status: Literal["ok", "degraded"]
    """`degraded`: jobs of dead workers are not taken back."""
    warnings: list[str]
    """What keeps the system from keeping its promise; empty when all is well."""
    instance: str
    """This API process: another one behind the same address, or the next one, has another."""
    version: str
    uptime: float
    """Seconds since this API process started."""
    server: Server
    reaper: Reaper
    due: int
    """Jobs and timers that wait for their time."""
    running: int


def json_response(document: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(orjson.dumps(document), status, headers, "application/json")


def _time(at_ms: int | None) -> str | None:
    return None if at_ms is None else rfc3339(at_ms)


def job_document(job: models.Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "run": job.run,
        "status": job.status,
        "reason": job.reason,
        "command": job.command,
        "argv": job.argv,
        "name": job.name,
        "queue": job.queue,
        "priority": job.priority,
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "timeout": None if job.timeout_ms is None else job.timeout_ms / 1000,
        "env": dict(job.env),
        "cwd": job.cwd,
        "created_at": rfc3339(job.created_at_ms),
        "run_at": _time(job.run_at_ms),
        "started_at": _time(job.started_at_ms),
        "finished_at": _time(job.finished_at_ms),
        "last_heartbeat": _time(job.last_heartbeat_at_ms),
        "cancel_requested_at": _time(job.cancel_requested_at_ms),
        "worker": job.worker,
        "exit_code": job.exit_code,
        "signal": job.signal,
        "error": job.error if job.error is not None else _skip_cause(job),
        "depends_on": [dependency.job for dependency in job.dependencies],
        "dependencies": [
            {"job": dependency.job, "when": dependency.when, "status": dependency.status}
            for dependency in job.dependencies
        ],
        "workflow": job.workflow,
    }


_NEW: dict[str, Any] = dict.fromkeys(Job.model_fields) | {"run": 1, "attempts": 0, "depends_on": (), "dependencies": ()}
"""What all new jobs have in common, in the order of the document."""


def new_job_document(
    job: models.NewJob,
    stored_at_ms: int,
    workflow: str | None = None,
    parents: Mapping[str, Status] = MappingProxyType({}),
) -> dict[str, Any]:
    """What `job_document` says of a job just stored; `parents` has the status of each job that it depends on."""
    document = {
        **_NEW,
        "id": job.id,
        "status": _first_status(job, stored_at_ms),
        "command": job.command,
        "argv": job.argv,
        "name": job.name,
        "queue": job.queue,
        "priority": job.priority,
        "max_attempts": job.max_attempts,
        "timeout": None if job.timeout_ms is None else job.timeout_ms / 1000,
        "env": job.env,
        "cwd": job.cwd,
        "created_at": rfc3339(stored_at_ms),
        "run_at": _time(_due_ms(job, stored_at_ms)),
        "workflow": workflow,
    }
    if job.depends_on:
        document["depends_on"] = [edge.job for edge in job.depends_on]
        document["dependencies"] = [
            {"job": edge.job, "when": edge.when, "status": parents[edge.job]} for edge in job.depends_on
        ]
    return document


def _due_ms(job: models.NewJob, stored_at_ms: int) -> int | None:
    return stored_at_ms + job.delay_ms if job.delay_ms else job.run_at_ms


def _first_status(job: models.NewJob, stored_at_ms: int) -> Status:
    """Return the status in which a job is stored, if none of those that it depends on has ended."""
    if job.depends_on:
        return Status.BLOCKED
    return Status.SCHEDULED if (_due_ms(job, stored_at_ms) or 0) > stored_at_ms else Status.PENDING


def _skip_cause(job: models.Job) -> str | None:
    """Return what a skipped job waited for in vain, None for others."""
    if job.status is not Status.SKIPPED or job.caused_by is None:
        return None
    edge = next((edge for edge in job.dependencies if edge.job == job.caused_by), None)
    if edge is None or edge.status is None:
        return f"skipped because of job {job.caused_by}, on which its dependencies depend"
    return f"skipped because job {edge.job} ended as {edge.status}, not as {edge.when}"


def _counts(counts: Mapping[Status, int]) -> dict[str, int]:
    return {status.value: count for status, count in counts.items()}


def list_document(items: Iterable[Mapping[str, Any]], next_cursor: str | None = None) -> dict[str, Any]:
    return {"data": list(items), "next_cursor": next_cursor}


def workflow_document(workflow: models.Workflow, jobs: Sequence[models.Job]) -> dict[str, Any]:
    return {
        "id": workflow.id,
        "name": workflow.name,
        "status": workflow_status(workflow),
        "created_at": rfc3339(workflow.created_at_ms),
        "size": workflow.size,
        "counts": _counts(workflow.counts),
        "jobs": [job_document(job) for job in jobs],
    }


def new_workflow_document(
    submitted: models.Submitted, name: str | None, jobs: Sequence[models.NewJob], stored_at_ms: int, most: int
) -> dict[str, Any]:
    """What `workflow_document` says of a workflow just stored, with its first `most` jobs."""
    states = {job.id: _first_status(job, stored_at_ms) for job in jobs}
    counts = Counter(states.values())
    return {
        "id": submitted.workflow,
        "name": name,
        "status": "running",
        "created_at": rfc3339(stored_at_ms),
        "size": len(jobs),
        "counts": {status.value: counts[status] for status in Status},
        "jobs": [new_job_document(job, stored_at_ms, submitted.workflow, states) for job in jobs[:most]],
    }


def workflow_status(workflow: models.Workflow) -> WorkflowStatus:
    """Return how the workflow stands; a skipped job alone is no failure: it may only handle one."""
    if not workflow.finished:
        return "running"
    bad = sum(workflow.counts.get(status, 0) for status in (Status.FAILED, Status.CANCELLED))
    return "failed" if bad else "done"


def queue_document(queue: models.QueueState) -> dict[str, Any]:
    return {"name": queue.name, "counts": _counts(queue.counts), "max_pending": queue.max_pending}


def worker_document(worker: WorkerState) -> dict[str, Any]:
    info = worker.info
    return {
        "id": info.id,
        "host": info.host,
        "pid": info.pid,
        "version": info.version,
        "queues": info.queues,
        "slots": info.slots,
        "running": info.running,
        "jobs": info.jobs,
        "started_at": rfc3339(info.started_at_ms),
        "last_heartbeat": rfc3339(worker.last_heartbeat_at_ms),
        "state": worker.status,
        "exec_addr": info.exec_addr,
        "resources": info.resources,
        "tags": info.tags,
    }
