"""The types of the HTTP API's JSON documents, for clients. `make generate` writes this file from `api/schemas`.

Times are RFC 3339 in UTC, durations are in seconds.
"""

from typing import Any, TypedDict


class DependencyDoc(TypedDict):
    job: str
    when: str
    status: str | None
    matching: bool


class ArrayDoc(TypedDict):
    """The tasks of an array job. A task that can't start yet has no job of its own and counts as `pending`."""

    size: int
    max_parallel: int | None
    counts: dict[str, int]


class TaskDoc(TypedDict):
    """The array to which a task belongs, and its index."""

    array: str
    index: int
    value: str | None


class ConcurrencyDoc(TypedDict):
    """Limits how many jobs with this key run concurrently: the limit of the latest job applies."""

    key: str
    limit: int


class RetryDoc(TypedDict):
    """The job's retry policy; null: the default of the scheduler. Durations are in seconds."""

    delay: float | None
    factor: float | None
    max_delay: float | None
    jitter: float | None


class UniqueDoc(TypedDict):
    """A key that only one job at a time holds, for at most `ttl` seconds."""

    key: str
    until: str
    on_conflict: str
    ttl: float


class JobDoc(TypedDict):
    """A job as stored. Times are RFC 3339 in UTC with three decimals, durations are in seconds."""

    command: str | None
    argv: list[str] | None
    timeout: float | None
    env: dict[str, str]
    cwd: str | None
    name: str | None
    tags: list[str]
    metadata: dict[str, Any]
    queue: str
    priority: int
    max_attempts: int
    run: int
    reason: str | None
    result: Any
    attempts: int
    run_at: str | None
    started_at: str | None
    finished_at: str | None
    cancel_requested_at: str | None
    worker: str | None
    exit_code: int | None
    signal: int | None
    error: str | None
    workflow: str | None
    final: bool
    id: str
    status: str
    created_at: str
    array: ArrayDoc | None
    task: TaskDoc | None
    progress: float | str | None
    concurrency: ConcurrencyDoc | None
    unique: UniqueDoc | None
    retry: RetryDoc | None
    retry_on_exit: list[int | str]
    no_retry_on_exit: list[int | str]
    deadline: str | None
    expires: str | None
    last_heartbeat: str | None
    depends_on: list[str]
    dependencies: list[DependencyDoc]
    dependency_count: int


class ExplanationDoc(TypedDict):
    """Why a job has its current status."""

    id: str
    status: str
    reason: str | None
    sentence: str
    facts: dict[str, Any]


class ActionFilterDoc(TypedDict):
    """The filter of a bulk action; null: any value."""

    status: str | None
    queue: str | None
    name: str | None
    workflow: str | None
    error: str | None
    tag: list[str]
    created_after: str | None
    created_before: str | None
    finished_after: str | None
    finished_before: str | None


class DestinationDoc(TypedDict):
    queue: str | None
    priority: int | None


class ActionDoc(TypedDict):
    """A bulk action and its progress."""

    id: str
    action: str
    state: str
    filter: ActionFilterDoc
    to: DestinationDoc | None
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
    """A workflow and its first 1,000 jobs, or 4 MB of them; `GET /jobs?workflow=` lists all."""

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
    jobs: int
    per: float


class QueueDoc(TypedDict):
    name: str
    counts: dict[str, int]
    max_pending: int | None
    max_running: int | None
    rate: RateDoc | None
    paused: bool


class NextRunDoc(TypedDict):
    """A time at which a schedule will fire."""

    at: str
    words: str


class ScheduleRunDoc(TypedDict):
    """The outcome of an occurrence; a series of skipped, missed or refused ones is one entry with the first time."""

    at: str
    outcome: str
    count: int
    recorded_at: str
    job: str | None
    workflow: str | None
    error: str | None


class ScheduleSummaryDoc(TypedDict):
    """A schedule without its job or workflow."""

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
    """A schedule with its next 5 runs and its last 20, the newest first."""

    job: dict[str, Any] | None
    workflow: dict[str, Any] | None
    next_runs: list[NextRunDoc]
    runs: list[ScheduleRunDoc]


class WorkerDoc(TypedDict):
    """A worker as described by its last heartbeat."""

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
    exec_addr: str | None
    resources: dict[str, int]
    tags: list[str]


class KeyDoc(TypedDict):
    """An API key."""

    id: str
    name: str
    scopes: list[str]
    queues: list[str] | None
    state: str
    created_at: str
    expires_at: str | None


class MadeKeyDoc(KeyDoc):
    key: str


class AuditDoc(TypedDict):
    """An entry of the audit log: a request that changed something or was rejected."""

    id: str
    at: str
    key: str
    key_name: str | None
    action: str
    target: str | None
    status: int | None
    address: str | None


class ServerDoc(TypedDict):
    """The Redis server as it describes itself; null for what our user may not read."""

    product: str
    version: str
    appendonly: bool | None
    appendfsync: str | None
    maxmemory_policy: str | None
    used_memory: int | None
    maxmemory: int | None


class ReaperDoc(TypedDict):
    last_pass_age: float | None


class HistoryDoc(TypedDict):
    """Whether Redis ever returned to an older state, after a restart or a failover."""

    rollbacks: int
    rolled_back_at: str | None


class HealthDoc(TypedDict):
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
