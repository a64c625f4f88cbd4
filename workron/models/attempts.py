"""Attempts: what a worker claims, and what it reports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal

from workron.models.jobs import Reason, Status

OUTPUT_HEAD: Final = 128 * 1024
OUTPUT_TAIL: Final = 128 * 1024
"""Bytes kept of the beginning of an attempt's output, and of its end once it is longer than both together."""


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
    more: Mapping[str, Any] = field(default_factory=dict)
    """What few jobs need: the store passes it through as JSON."""

    @property
    def is_suspect(self) -> bool:
        """Whether workers were lost with this job before, so that it is to run alone."""
        return bool(self.more.get("alone"))

    @property
    def has_parents(self) -> bool:
        """Whether the job depends on others, whose results its command may read."""
        return bool(self.more.get("parents"))


@dataclass(frozen=True, slots=True)
class Parent:
    """A job that another one depends on, as the other's command is told of it; `status` None: no longer stored."""

    id: str
    status: Status | None
    name: str | None
    result: Any
    left_out: bool = False
    """Whether there was no room for its result."""


@dataclass(frozen=True, slots=True)
class OutputPatch:
    """A change to the stored output of an attempt: `data` stands at byte `offset` of what is stored.

    What is stored is the first `OUTPUT_HEAD` bytes and, behind them, the last `OUTPUT_TAIL` bytes.
    `total` counts all bytes that the command wrote so far, stored or not.
    """

    offset: int
    data: bytes
    total: int
    progress: str | None = None
    """How far the command is, if it has said so since; a patch may have this alone."""


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
    retry_after_ms: int | None = None
    """The wait before the next attempt that the job itself has asked for."""
    result: str | None = None
    """JSON that the command made, at most 64 KiB."""
    progress: str | None = None
    """What the command said last of how far it is."""


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
    Where nothing is there the request is parked for `park_ms`, and woken when it may find something; a limit of 0 ends
    it. `inbox` is the list that brings the worker's name then, None for one of its own. `begins`: the worker says when
    the command of a job begins that it got alone (`begin`); until then a loss of the worker does not count against the
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


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the output of a job: byte `offset` of all that the attempt with this fence has written.

    Fence 0 is before the first attempt whose output is kept.
    """

    fence: int = 0
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.fence}:{self.offset}"


@dataclass(frozen=True, slots=True)
class Piece:
    """The bytes of an attempt's output from `start` to `end`; `data` None: they were cut out, and can't be had."""

    fence: int
    start: int
    end: int
    data: bytes | None


@dataclass(frozen=True, slots=True)
class Written:
    """What stands behind a position: pieces of one attempt, in their order, and the job's status at that moment.

    If the job has ended and there are no pieces, there is no more output. `fence`, `total`: of the attempt that was
    read, and how many bytes it has written in all.
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
