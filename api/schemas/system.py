"""Queues, workers and the system, as the API answers them."""

from typing import Any, Literal

from api.schemas.base import Answer, Time, counts_document
from workron import models
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
    """Others are left: ask again."""


class Queue(Answer):
    name: str
    counts: dict[Status, int]
    max_pending: int | None
    """Most jobs that may wait in it, its own limit or the one for all queues; null: any number."""
    max_running: int | None
    """Most jobs of it that may run at once."""
    rate: Rate | None
    """Most jobs of it that may start in any such time."""
    paused: bool
    """No more jobs of it are started."""


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


class History(Answer):
    """Whether Redis was ever found in an older state than before, by a restart or a failover."""

    rollbacks: int
    rolled_back_at: Time | None


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
    history: History
    quarantined: int
    """Jobs whose keys are damaged: they are passed over."""
    due: int
    """Jobs and timers that wait for their time."""
    running: int


def queue_document(queue: models.QueueState) -> dict[str, Any]:
    rate = queue.rate
    return {
        "name": queue.name,
        "counts": counts_document(queue.counts),
        "max_pending": queue.max_pending,
        "max_running": queue.max_running,
        "rate": None if rate is None else {"jobs": rate.jobs, "per": rate.per_ms / 1000},
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
