"""Jobs as submitted and as stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from workron.models.job_fields import Described, Stored
from workron.models.retry import Code, RetryPolicy

EDGES_SHOWN: Final = 20
"""Maximum of a job's dependencies shown in lists of jobs."""
UNIQUE_MS: Final = 24 * 3600 * 1000
"""Default maximum time for holding a unique key."""


class Status(StrEnum):
    """The status of a job. The last four are terminal."""

    SCHEDULED = "scheduled"
    BLOCKED = "blocked"
    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"

    @property
    def terminal(self) -> bool:
        return self in TERMINAL


TERMINAL: Final = frozenset({Status.DONE, Status.FAILED, Status.CANCELLED, Status.SKIPPED})


class Together(StrEnum):
    """With what a job was cancelled, if that was not by a cancel of its own."""

    WORKFLOW = "workflow"
    FAILURE = "failure"
    """The job in `caused_by` has failed, and with that its workflow was stopped."""
    DEPENDENCY = "dependency"
    """The job in `caused_by`, on which it depends, was cancelled with all its dependents."""


class When(StrEnum):
    """Which final status of the parent satisfies an edge."""

    DONE = "done"
    FAILED = "failed"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Dependency:
    """An edge of the graph: wait for `job` to end with status `when`."""

    job: str
    when: When = When.DONE
    matching: bool = False
    """Between arrays of the same size: each task waits for the task with its index."""


@dataclass(frozen=True, slots=True)
class NewArray:
    """The tasks of an array job, each with its index and value, if any; `first` is the id of task 0."""

    first: str
    size: int
    values: Sequence[str] | None = None
    max_parallel: int | None = None


@dataclass(frozen=True, slots=True)
class Array:
    """The number of a job's tasks in each status; `rest` are not created yet: they wait, and have no status."""

    first: str
    size: int
    max_parallel: int | None
    counts: Mapping[Status, int]
    rest: int


@dataclass(frozen=True, slots=True)
class Task:
    """The array to which this task belongs, and its index."""

    array: str
    index: int
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Concurrency:
    """Limits how many jobs with this key run at a time, in all queues together."""

    key: str
    limit: int


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time: a duration after the submission (and each retry), or an absolute time. One of both is set."""

    after_ms: int | None = None
    at_ms: int | None = None

    def seen_from(self, submitted_at_ms: int) -> int:
        """Return the absolute time."""
        return submitted_at_ms + self.after_ms if self.after_ms is not None else self.at_ms or 0


class Until(StrEnum):
    """Until when a job holds its unique key."""

    STARTED = "started"
    FINISHED = "finished"


class OnConflict(StrEnum):
    """The policy for a job whose unique key is held by another job."""

    RETURN = "return"
    REJECT = "reject"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Unique:
    """A key that only one job at a time holds, for at most `ttl_ms`."""

    key: str
    until: Until = Until.FINISHED
    on_conflict: OnConflict = OnConflict.RETURN
    ttl_ms: int = UNIQUE_MS


@dataclass(slots=True)
class NewJob(Described):
    """A job as submitted. Exactly one of `command` (for `sh -c`) and `argv` is set.

    Not frozen: that would take 1 µs instead of 0.25, for each of up to 100,000 in a request.
    """

    id: str
    array: "NewArray | None" = None
    concurrency: Concurrency | None = None
    unique: Unique | None = None
    retry: RetryPolicy | None = None
    retry_on_exit: Sequence[Code] = ()
    no_retry_on_exit: Sequence[Code] = ()
    delay_ms: int | None = None
    run_at_ms: int | None = None
    deadline: Moment | None = None
    """The job fails unless it has ended by then."""
    expires: Moment | None = None
    """The job is cancelled unless it has started by then."""
    depends_on: Sequence[Dependency] = ()
    final: bool = False
    """The job starts when all other jobs of its workflow have ended."""
    watched: bool = False
    """Its workflow has to know how it ends: see `Workflow.watched`."""
    key: str | None = None
    """Id of the API key with which it was submitted, None for the master key."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Data only for the worker, as JSON passed through Redis to the claim; mostly empty."""


@dataclass(frozen=True, slots=True)
class DependencyState:
    """An edge as seen from the child: the parent's current status, None if it is no longer stored."""

    job: str
    when: When
    status: Status | None
    matching: bool = False


@dataclass(slots=True)
class Job(Stored):
    """A job as stored. Not to be changed; not frozen, which would make a page of 1,000 jobs slower to read."""

    id: str
    status: Status
    created_at_ms: int
    array: Array | None = None
    task: Task | None = None
    progress: str | None = None
    concurrency: Concurrency | None = None
    unique: Unique | None = None
    retry: RetryPolicy | None = None
    retry_on_exit: tuple[Code, ...] = ()
    no_retry_on_exit: tuple[Code, ...] = ()
    deadline_at_ms: int | None = None
    expires_at_ms: int | None = None
    last_heartbeat_at_ms: int | None = None
    dependencies: tuple[DependencyState, ...] = ()
    """In a page of jobs only the first ones."""
    dependency_count: int = 0
    caused_by: str | None = None
    cancelled_with: Together | None = None


@dataclass(frozen=True, slots=True)
class JobFilter:
    """A filter for listing jobs; None means any."""

    status: Status | None = None
    queue: str | None = None
    workflow: str | None = None
    array: str | None = None
    tags: Sequence[str] = ()
    """All of them."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Key → value, as text or as JSON."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Values of filterable plain fields, by name."""


@dataclass(frozen=True, slots=True)
class JobPage:
    """One page of a listing. It may be empty although more follow: continue with `next_cursor`."""

    jobs: tuple[Job, ...]
    next_cursor: str | None


class Cancelled(StrEnum):
    """The result of a cancel."""

    CANCELLED = "cancelled"
    CANCELLING = "cancelling"
    """A running command is being stopped."""


@dataclass(frozen=True, slots=True)
class Idempotency:
    """A submission's Idempotency-Key, within one API key, and the fingerprint of its body."""

    scope: str
    key: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Submitted:
    """The ids of a submission, in order. `repeated`: it was already stored with the same key.

    `stored_at_ms` is set for new jobs that depend at most on each other: their whole state follows from it.
    """

    ids: tuple[str, ...]
    repeated: bool = False
    returned: bool = False
    """Nothing was stored: other jobs hold the unique keys of all."""
    workflow: str | None = None
    stored_at_ms: int | None = None
