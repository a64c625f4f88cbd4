"""The nouns of Workron: what the store takes and gives. Plain frozen values, no Redis, no HTTP.

Times are integers in milliseconds since the epoch on the Redis server's clock (`…_at_ms`), lengths of time are
milliseconds (`…_ms`). `api/schemas.py` turns them into RFC 3339 and seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal

DEFAULT_QUEUE: Final = "default"
DEFAULT_PRIORITY: Final = 5
DEFAULT_MAX_ATTEMPTS: Final = 3
PRIORITIES: Final = range(1, 10)

OUTPUT_HEAD: Final = 128 * 1024
OUTPUT_TAIL: Final = 128 * 1024
"""Bytes kept of the beginning of an attempt's output, and of its end once it is longer than both together."""


class Status(StrEnum):
    """Where a job is. The last four are terminal."""

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


class Reason(StrEnum):
    """Why a job, or its last attempt, ended as it did."""

    EXIT_CODE = "exit_code"
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    WORKER_LOST = "worker_lost"
    UPSTREAM = "upstream"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    SPAWN = "spawn"


class When(StrEnum):
    """Which end of the parent satisfies an edge."""

    DONE = "done"
    FAILED = "failed"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Dependency:
    """One edge of the graph: wait for `job` to end as `when` says."""

    job: str
    when: When = When.DONE


@dataclass(slots=True)
class NewJob:
    """A job as submitted. Exactly one of `command` (for `sh -c`) and `argv` is set.

    Not frozen: that takes 1 µs instead of 0.25, for each of up to 100,000 in a request.
    """

    id: str
    command: str | None = None
    argv: Sequence[str] | None = None
    name: str | None = None
    queue: str = DEFAULT_QUEUE
    priority: int = DEFAULT_PRIORITY
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    timeout_ms: int | None = None
    delay_ms: int | None = None
    run_at_ms: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    depends_on: Sequence[Dependency] = ()


@dataclass(frozen=True, slots=True)
class DependencyState:
    """An edge as seen from the child: the parent's present status, None when it is no longer stored."""

    job: str
    when: When
    status: Status | None


@dataclass(frozen=True, slots=True)
class Job:
    """A job as stored."""

    id: str
    run: int
    status: Status
    reason: Reason | None
    command: str | None
    argv: tuple[str, ...] | None
    name: str | None
    queue: str
    priority: int
    attempts: int
    max_attempts: int
    timeout_ms: int | None
    env: Mapping[str, str]
    cwd: str | None
    created_at_ms: int
    run_at_ms: int | None
    started_at_ms: int | None
    finished_at_ms: int | None
    last_heartbeat_at_ms: int | None
    cancel_requested_at_ms: int | None
    worker: str | None
    exit_code: int | None
    signal: int | None
    error: str | None
    dependencies: tuple[DependencyState, ...]
    caused_by: str | None
    workflow: str | None


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to run one attempt of a job, until the lease ends."""

    id: str
    fence: int
    attempt: int
    lease_ms: int
    command: str | None
    argv: tuple[str, ...] | None
    queue: str
    timeout_ms: int | None
    env: Mapping[str, str]
    cwd: str | None


@dataclass(frozen=True, slots=True)
class OutputPatch:
    """A change to the stored output of an attempt: `data` stands at byte `offset` of what is stored.

    What is stored is the first `OUTPUT_HEAD` bytes and, behind them, the last `OUTPUT_TAIL` bytes.
    `total` counts all bytes that the command wrote so far, stored or not.
    """

    offset: int
    data: bytes
    total: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended, as its worker saw it. `reason` is None only for success (exit code 0).

    `WORKER_LOST` means that the command was killed because the lease could not be kept.
    """

    reason: Reason | None
    exit_code: int | None = None
    signal: int | None = None
    error: str | None = None
    """One paragraph for people: what went wrong and the end of the output; at most 4 KiB."""


Unfenced = Literal["safe", "always"]
"""In place of the fence of a report that brings none: the last attempt is meant; `safe`: unless it may be another."""


@dataclass(frozen=True, slots=True)
class Result:
    """An outcome on its way to the store, with the last piece of the attempt's output."""

    id: str
    fence: int | Unfenced
    outcome: Outcome
    output: OutputPatch | None = None


class Verdict(StrEnum):
    """What the scheduler made of a result."""

    ACCEPTED = "accepted"
    RECORDED = "recorded"
    """This result was already accepted: a repeat."""
    LEASE_LOST = "lease_lost"
    UNKNOWN = "unknown"
    """No such job."""
    BROKEN = "broken"
    """What Redis holds of the job is damaged."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer to one result: the verdict and the job's status after it."""

    id: str
    verdict: Verdict
    status: Status | None


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """Ask for up to `limit` jobs of these queues, the first queue first.

    `request_id` is `<incarnation>:<counter>`: once it has got claims a repeat gets the same, and the counter grows.
    Where nothing is there the request is parked for `park_ms`: what comes then is told as `News`; a limit of 0 ends it.
    `inbox` is where the news come to, None for the worker's own.
    """

    worker: str
    queues: Sequence[str]
    limit: int
    request_id: str
    park_ms: int = 0
    inbox: str | None = None


@dataclass(frozen=True, slots=True)
class Claimed:
    """The answer to a claim. Empty and not `more`: there is nothing to do now; look again in `next_due_in_ms`."""

    claims: tuple[Claim, ...] = ()
    more: bool = False
    next_due_in_ms: int | None = None
    parked: bool = False
    answered: bool = False
    """Whether the request has got its claims, though none of them may be left: the next one needs another id."""


class Beat(StrEnum):
    """What a heartbeat found out about one running attempt."""

    OK = "ok"
    CANCEL = "cancel"
    LOST = "lost"


class Cancelled(StrEnum):
    """What a cancel did."""

    CANCELLED = "cancelled"
    CANCELLING = "cancelling"
    """A running command is being stopped."""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker process as it describes itself with every heartbeat."""

    id: str
    host: str
    pid: int
    queues: tuple[str, ...]
    slots: int
    running: int
    started_at_ms: int
    version: str
    jobs: tuple[str, ...] = ()
    """The jobs that it holds, the longest first; at most 100 of them."""
    draining: bool = False
    """It claims no more, and ends with its last job."""
    exec_addr: str | None = None
    """Where it says it can be reached; nobody calls it."""
    resources: Mapping[str, int] = field(default_factory=dict)
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueState:
    """A queue, how many jobs it has in each status, and how many may wait: its own limit or the one for all."""

    name: str
    counts: Mapping[Status, int]
    max_pending: int | None = None


@dataclass(frozen=True, slots=True)
class Workflow:
    """A workflow and how many of its jobs are in each status."""

    id: str
    name: str | None
    created_at_ms: int
    size: int
    counts: Mapping[Status, int]

    @property
    def finished(self) -> bool:
        return sum(self.counts.get(status, 0) for status in TERMINAL) >= self.size


@dataclass(frozen=True, slots=True)
class Output:
    """Stored output of one attempt: `head`, then `cut` bytes that were dropped, then `tail`."""

    attempt_fence: int | None
    head: bytes = b""
    cut: int = 0
    tail: bytes = b""

    @property
    def total(self) -> int:
        return len(self.head) + self.cut + len(self.tail)


@dataclass(frozen=True, slots=True)
class JobPage:
    """One page of a listing. It may be empty although more follow: then go on with `next_cursor`."""

    jobs: tuple[Job, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Idempotency:
    """A submission's Idempotency-Key, within one API key, and the fingerprint of its body."""

    scope: str
    key: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Submitted:
    """The ids of a submission, in the order submitted. `repeated`: it was stored before, by the same key.

    `stored_at_ms` is set for new jobs that depend at most on each other: all there is to know of them follows from it.
    """

    ids: tuple[str, ...]
    repeated: bool = False
    workflow: str | None = None
    stored_at_ms: int | None = None
