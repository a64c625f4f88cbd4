"""Queues, workers and the system, as the API returns them."""

from typing import Any, Literal

from api.schemas.base import Answer, Time, counts_document
from workron import models
from workron.durations import to_seconds
from workron.models import Status
from workron.models.workers import WorkerState, WorkerStatus
from workron.times import rfc3339


class Rate(Answer):
    jobs: int
    per: float
    """Seconds."""


class Purged(Answer):
    cancelled: int
    more: bool
    """Some jobs are left: repeat the request."""


class Queue(Answer):
    name: str
    counts: dict[Status, int]
    max_pending: int | None
    """Maximum of waiting jobs, its own or the default of all queues; null: no limit."""
    max_running: int | None
    """Maximum of running jobs."""
    rate: Rate | None
    """Maximum of jobs started per duration."""
    paused: bool
    """No jobs of the queue are started."""


class QueueList(Answer):
    data: list[Queue]
    next_cursor: str | None


class Worker(Answer):
    """A worker as described by its last heartbeat."""

    id: str
    host: str
    pid: int
    version: str
    queues: list[str]
    slots: int
    running: int
    """Slots in use."""
    jobs: list[str]
    """Ids of its running jobs, oldest first; at most 100."""
    started_at: Time
    last_heartbeat: Time
    state: WorkerStatus
    """`draining`: it claims no more jobs and stops after its last job. `lost`: it was silent for longer than its lease;
    it is forgotten after an hour."""
    exec_addr: str | None
    resources: dict[str, int]
    tags: list[str]


class WorkerList(Answer):
    """Workers by id, and the cursor of the next page."""

    data: list[Worker]
    next_cursor: str | None


class Alive(Answer):
    status: Literal["ok"]


class Server(Answer):
    """The Redis server as it describes itself; null for what our user may not read."""

    product: str
    version: str
    appendonly: bool | None
    appendfsync: str | None
    maxmemory_policy: str | None
    used_memory: int | None
    maxmemory: int | None


class Reaper(Answer):
    last_pass_age: float | None
    """Seconds since the last pass of any reaper; null if there was none."""


class History(Answer):
    """Whether Redis ever returned to an older state, after a restart or a failover."""

    rollbacks: int
    rolled_back_at: Time | None


class Health(Answer):
    status: Literal["ok", "degraded"]
    """`degraded`: Redis refuses writes or new jobs, or jobs of lost workers are not recovered."""
    warnings: list[str]
    """Problems that endanger the guarantees; empty if there are none."""
    instance: str
    """Id of this API process; each process has another."""
    version: str
    uptime: float
    """Seconds since this API process started."""
    server: Server
    reaper: Reaper
    history: History
    quarantined: int
    """Number of jobs whose keys are damaged; they are skipped."""
    due: int
    """Number of jobs and timers waiting for their time."""
    running: int


def queue_document(queue: models.QueueState) -> dict[str, Any]:
    rate = queue.rate
    return {
        "name": queue.name,
        "counts": counts_document(queue.counts),
        "max_pending": queue.max_pending,
        "max_running": queue.max_running,
        "rate": None if rate is None else {"jobs": rate.jobs, "per": to_seconds(rate.per_ms)},
        "paused": queue.paused,
    }


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
