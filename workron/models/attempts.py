"""Attempts: claims of workers, and their reports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal

from workron.models.job_fields import Execution, Reason
from workron.models.jobs import Status

OUTPUT_HEAD: Final = 128 * 1024
OUTPUT_TAIL: Final = 128 * 1024
"""Bytes stored of the beginning of an attempt's output, and of its end if it is longer than both together."""


@dataclass(slots=True)
class Claim(Execution):
    """The right to run one attempt of a job until the lease expires. Not to be changed."""

    id: str
    fence: int
    attempt: int
    lease_ms: int
    queue: str
    more: Mapping[str, Any] = field(default_factory=dict)
    """Data of special jobs, passed through by the store as JSON."""

    @property
    def is_suspect(self) -> bool:
        """Whether workers were lost with this job before, so that it must run alone."""
        return bool(self.more.get("alone"))

    @property
    def has_parents(self) -> bool:
        """Whether the job has dependencies, whose results its command may read."""
        return bool(self.more.get("parents"))


@dataclass(frozen=True, slots=True)
class Parent:
    """A dependency as passed to a job's command; `status` None: no longer stored."""

    id: str
    status: Status | None
    name: str | None
    result: Any
    left_out: bool = False
    """Whether the result was dropped for lack of room."""


@dataclass(frozen=True, slots=True)
class OutputPatch:
    """A change to the stored output of an attempt: `data` is at byte `offset` of the stored bytes.

    These are the first `OUTPUT_HEAD` bytes, followed by the last `OUTPUT_TAIL` bytes.
    `total` counts all bytes written so far, stored or not.
    """

    offset: int
    data: bytes
    total: int
    progress: str | None = None
    """New progress of the command, if any; a patch may have this alone."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an attempt, as seen by its worker. `reason` is None only for success (exit code 0).

    `WORKER_LOST` means that the command was killed because the lease could not be kept.
    """

    reason: Reason | None
    exit_code: int | None = None
    signal: int | None = None
    error: str | None = None
    """A line that says how the attempt ended, and the end of the output; at most 4 KiB."""
    retry_after_ms: int | None = None
    """Delay before the next attempt, as requested by the command."""
    result: str | None = None
    """JSON result of the command, at most 64 KiB."""
    progress: str | None = None
    """Last progress reported by the command."""


Unfenced = Literal["safe", "always"]
"""Replaces a missing fence of a report: it concerns the last attempt; `safe`: only if it is unambiguous."""


@dataclass(frozen=True, slots=True)
class Result:
    """An outcome to be reported, with the last part of the attempt's output."""

    id: str
    fence: int | Unfenced
    outcome: Outcome
    output: OutputPatch | None = None


class Verdict(StrEnum):
    """The scheduler's verdict on a result."""

    ACCEPTED = "accepted"
    RECORDED = "recorded"
    """This result was already accepted: a repeat."""
    LEASE_LOST = "lease_lost"
    UNKNOWN = "unknown"
    """No such job."""
    BROKEN = "broken"
    """The job's data in Redis is damaged."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The response to one result: the verdict and the job's status after it."""

    id: str
    verdict: Verdict
    status: Status | None


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """A request for up to `limit` jobs of these queues, in order of priority.

    `request_id` is `<incarnation>:<counter>`: a repeat returns the same claims; after claims the counter grows.
    Without a job the request is parked for `park_ms`, and woken when there may be a job; limit 0 unparks
    it. `inbox` is the list that receives the worker's name then, None for its own. `begins`: the worker reports when
    the command of a job that runs alone begins (`begin`); until then a loss of the worker does not count against the
    job.
    """

    worker: str
    queues: Sequence[str]
    limit: int
    request_id: str
    park_ms: int = 0
    inbox: str | None = None
    begins: bool = False


@dataclass(frozen=True, slots=True)
class Claimed:
    """The response to a claim. Empty without `more`: there is no job now; repeat after `next_due_in_ms`."""

    claims: tuple[Claim, ...] = ()
    more: bool = False
    next_due_in_ms: int | None = None
    parked: bool = False
    answered: bool = False
    """Whether the request has received its claims, even if none is left: the next request needs a new id."""


class Beat(StrEnum):
    """The response of a heartbeat for one running attempt."""

    OK = "ok"
    CANCEL = "cancel"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Position:
    """A position in the output of a job: byte `offset` of all output of the attempt with this fence.

    Fence 0 is before the first attempt with stored output.
    """

    fence: int = 0
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.fence}:{self.offset}"


@dataclass(frozen=True, slots=True)
class Piece:
    """The bytes of an attempt's output from `start` to `end`; `data` None: they were dropped."""

    fence: int
    start: int
    end: int
    data: bytes | None


@dataclass(frozen=True, slots=True)
class Written:
    """The output after a position: pieces of one attempt in order, and the job's status at that time.

    If the job has ended and there are no pieces, there is no more output. `fence`, `total`: the attempt that was
    read, and its total output in bytes.
    """

    status: Status
    fence: int
    total: int
    pieces: tuple[Piece, ...]


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
