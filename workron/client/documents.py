"""The types of the HTTP API's JSON documents, for clients.

Times are RFC 3339 in UTC, durations are in seconds.
"""

from typing import Any, TypedDict

from workron.client.job_fields import PlainJobDoc


class DependencyDoc(TypedDict):
    """A dependency as the API returns it."""

    job: str
    when: str
    status: str | None
    matching: bool


class ArrayDoc(TypedDict):
    """The tasks of a job, as the API returns them."""

    size: int
    max_parallel: int | None
    counts: dict[str, int]


class TaskDoc(TypedDict):
    """The array to which a task belongs, and its index."""

    array: str
    index: int
    value: str | None


class ConcurrencyDoc(TypedDict):
    """A concurrency key, and how many jobs with it may run at a time."""

    key: str
    limit: int


class RetryDoc(TypedDict):
    """Delays between attempts; None: the default of the scheduler."""

    delay: float | None
    factor: float | None
    max_delay: float | None
    jitter: float | None


class UniqueDoc(TypedDict):
    """A key that only one job at a time holds, and the policy for other jobs with this key."""

    key: str
    until: str
    on_conflict: str
    ttl: float


class JobDoc(PlainJobDoc):
    """A job as the API returns it."""

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
    """Why a job has its status, as a sentence and as facts."""

    id: str
    status: str
    reason: str | None
    sentence: str
    facts: dict[str, Any]


class ActionDoc(TypedDict):
    """A bulk action and its progress."""

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
    """A workflow as the API returns it, with its first 1,000 jobs."""

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
    """A rate: at most `jobs` starts within any period of `per` seconds."""

    jobs: int
    per: float


class QueueDoc(TypedDict):
    """A queue, its number of jobs in each status, and its limits (None: no limit)."""

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
    """The outcome of an occurrence of a schedule, or of a series of them."""

    at: str
    outcome: str
    count: int
    recorded_at: str
    job: str | None
    workflow: str | None
    error: str | None


class ScheduleSummaryDoc(TypedDict):
    """A schedule in a list."""

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
    """A schedule as the API returns it."""

    job: dict[str, Any] | None
    workflow: dict[str, Any] | None
    next_runs: list[NextRunDoc]
    runs: list[ScheduleRunDoc]


class WorkerDoc(TypedDict):
    """A worker as described by its last heartbeat; `state` is active, draining or lost."""

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
    """An API key as the API lists it; `queues` null: all queues."""

    id: str
    name: str
    scopes: list[str]
    queues: list[str] | None
    state: str
    created_at: str
    expires_at: str | None


class MadeKeyDoc(KeyDoc):
    """A new key, with its text."""

    key: str


class AuditDoc(TypedDict):
    """An entry of the audit log: the key, operation, targets and status of a request."""

    id: str
    at: str
    key: str
    key_name: str | None
    action: str
    target: str | None
    status: int | None
    address: str | None


class ServerDoc(TypedDict):
    """The Redis server's description of itself; null for what our user may not read."""

    product: str
    version: str
    appendonly: bool | None
    appendfsync: str | None
    maxmemory_policy: str | None
    used_memory: int | None
    maxmemory: int | None


class ReaperDoc(TypedDict):
    """The age of the last pass of a reaper, in seconds."""

    last_pass_age: float | None


class HistoryDoc(TypedDict):
    """Whether Redis ever returned to an older state."""

    rollbacks: int
    rolled_back_at: str | None


class HealthDoc(TypedDict):
    """The health of the system; `warnings` are problems that endanger its guarantees."""

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
