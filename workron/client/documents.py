"""The JSON documents of the HTTP API as a client sees them.

Times are RFC 3339 in UTC, lengths of time are seconds.
"""

from typing import Any, TypedDict


class DependencyDoc(TypedDict):
    """An edge of the graph as the API answers it."""

    job: str
    when: str
    status: str | None
    matching: bool


class ArrayDoc(TypedDict):
    """The tasks of a job, as the API answers them."""

    size: int
    max_parallel: int | None
    counts: dict[str, int]


class TaskDoc(TypedDict):
    """Which task of which job's array a job is."""

    array: str
    index: int
    value: str | None


class ConcurrencyDoc(TypedDict):
    """A concurrency key, and how many jobs with it may run at once."""

    key: str
    limit: int


class RetryDoc(TypedDict):
    """The waits between attempts; None: as it is set for all jobs."""

    delay: float | None
    factor: float | None
    max_delay: float | None
    jitter: float | None


class UniqueDoc(TypedDict):
    """A key that one job at a time holds, and what becomes of others that want it."""

    key: str
    until: str
    on_conflict: str
    ttl: float


class JobDoc(TypedDict):
    """A job as the API answers it."""

    id: str
    run: int
    status: str
    reason: str | None
    command: str | None
    argv: list[str] | None
    array: ArrayDoc | None
    task: TaskDoc | None
    name: str | None
    tags: list[str]
    metadata: dict[str, Any]
    result: Any
    progress: float | str | None
    queue: str
    concurrency: ConcurrencyDoc | None
    priority: int
    unique: UniqueDoc | None
    attempts: int
    max_attempts: int
    retry: RetryDoc | None
    retry_on_exit: list[int | str]
    no_retry_on_exit: list[int | str]
    timeout: float | None
    env: dict[str, str]
    cwd: str | None
    created_at: str
    run_at: str | None
    deadline: str | None
    expires: str | None
    started_at: str | None
    finished_at: str | None
    last_heartbeat: str | None
    cancel_requested_at: str | None
    worker: str | None
    exit_code: int | None
    signal: int | None
    error: str | None
    depends_on: list[str]
    dependencies: list[DependencyDoc]
    dependency_count: int
    workflow: str | None
    final: bool


class ExplanationDoc(TypedDict):
    """Why a job is where it is, in a sentence, and the facts behind it."""

    id: str
    status: str
    reason: str | None
    sentence: str
    facts: dict[str, Any]


class ActionDoc(TypedDict):
    """A bulk action and how far it is."""

    id: str
    action: str
    state: str
    filter: dict[str, Any]
    to: dict[str, Any] | None
    dry_run: bool
    created_at: str
    finished_at: str | None
    total: int
    looked: int
    matched: int
    done: int
    failed: int
    first_error: str | None


class WorkflowDoc(TypedDict):
    """A workflow as the API answers it, with its first 1,000 jobs."""

    id: str
    name: str | None
    status: str
    created_at: str
    size: int
    counts: dict[str, int]
    on_failure: str
    stopped: str | None
    stopped_by: str | None
    final: str | None
    jobs: list[JobDoc]


class RateDoc(TypedDict):
    """At most so many starts in any time of this length, in seconds."""

    jobs: int
    per: float


class QueueDoc(TypedDict):
    """A queue, how many jobs it has in each status, and how many may wait (None: any number)."""

    name: str
    counts: dict[str, int]
    max_pending: int | None
    max_running: int | None
    rate: RateDoc | None
    paused: bool


class NextRunDoc(TypedDict):
    """A moment at which a schedule is going to fire."""

    at: str
    words: str


class ScheduleRunDoc(TypedDict):
    """What became of an occurrence of a schedule, or of a row of them."""

    at: str
    outcome: str
    count: int
    recorded_at: str
    job: str | None
    workflow: str | None
    error: str | None


class ScheduleSummaryDoc(TypedDict):
    """A schedule as it is listed."""

    name: str
    cron: str
    timezone: str
    description: str
    dst: str
    overlap: str
    catch_up: str
    paused: bool
    created_at: str
    updated_at: str
    next_run_at: str | None
    queued: str | None
    counts: dict[str, int]


class ScheduleDoc(ScheduleSummaryDoc):
    """A schedule as the API answers it."""

    job: dict[str, Any] | None
    workflow: dict[str, Any] | None
    next_runs: list[NextRunDoc]
    runs: list[ScheduleRunDoc]


class WorkerDoc(TypedDict):
    """A worker as it described itself with its last heartbeat; `state` is active, draining or lost."""

    id: str
    host: str
    pid: int
    version: str
    queues: list[str]
    slots: int
    running: int
    jobs: list[str]
    started_at: str
    last_heartbeat: str
    state: str


class KeyDoc(TypedDict):
    """An API key as the API lists it; `queues` null: all."""

    id: str
    name: str
    scopes: list[str]
    queues: list[str] | None
    state: str
    created_at: str
    expires_at: str | None


class MadeKeyDoc(KeyDoc):
    """A key that was just made, with its text."""

    key: str


class AuditDoc(TypedDict):
    """One request of the record: who, what, to what, and how it was answered."""

    id: str
    at: str
    key: str
    key_name: str | None
    action: str
    target: str | None
    status: int | None
    address: str | None


class ServerDoc(TypedDict):
    """What the Redis server says of itself; null where it is not allowed to say."""

    product: str
    version: str
    appendonly: bool | None
    appendfsync: str | None
    maxmemory_policy: str | None
    used_memory: int | None
    maxmemory: int | None


class ReaperDoc(TypedDict):
    """When a reaper was last at work, in seconds ago."""

    last_pass_age: float | None


class HistoryDoc(TypedDict):
    """Whether Redis was ever found in an older state than before."""

    rollbacks: int
    rolled_back_at: str | None


class HealthDoc(TypedDict):
    """How the system is; `warnings` say what keeps it from keeping its promise."""

    status: str
    warnings: list[str]
    instance: str
    version: str
    uptime: float
    server: ServerDoc
    reaper: ReaperDoc
    history: HistoryDoc
    quarantined: int
    due: int
    running: int
