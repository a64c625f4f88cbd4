"""Workers, queues and workflows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final

from workron.models.jobs import TERMINAL, Status


class NoLimit(Enum):
    """In place of a limit."""

    NO_LIMIT = "none"


NO_LIMIT: Final = NoLimit.NO_LIMIT


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
class Rate:
    """At most so many starts in any time of this length."""

    jobs: int
    per_ms: int


@dataclass(frozen=True, slots=True)
class QueueChange:
    """What to change of a queue; None: nothing, `NO_LIMIT`: take the limit away."""

    max_pending: "int | NoLimit | None" = None
    max_running: "int | NoLimit | None" = None
    rate: "Rate | NoLimit | None" = None
    paused: bool | None = None


@dataclass(frozen=True, slots=True)
class QueueState:
    """A queue, how many jobs it has in each status, and how many may wait: its own limit or the one for all."""

    name: str
    counts: Mapping[Status, int]
    max_pending: int | None = None
    max_running: int | None = None
    rate: "Rate | None" = None
    paused: bool = False


@dataclass(frozen=True, slots=True)
class QueuePage:
    """One page of queues, by name."""

    queues: tuple[QueueState, ...]
    next_cursor: str | None


class OnFailure(StrEnum):
    """What a workflow does when one of its jobs has failed."""

    CONTINUE = "continue"
    STOP = "stop"
    """It cancels all that has not started."""


class Stopped(StrEnum):
    """Why a workflow was stopped."""

    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Workflow:
    """A workflow and how many of its jobs are in each status."""

    id: str
    name: str | None
    created_at_ms: int
    size: int
    counts: Mapping[Status, int]
    on_failure: OnFailure = OnFailure.CONTINUE
    stopped: Stopped | None = None
    stopped_by: str | None = None
    """The job that has failed."""
    final: str | None = None
    """The job that starts when all others have ended."""
    holds: str = ""
    """What its jobs hold: see `NewJob.holds`."""
    key: str | None = None
    """Id of the API key that it was submitted with, None for the one that needs no Redis."""

    @property
    def finished(self) -> bool:
        return sum(self.counts.get(status, 0) for status in TERMINAL) >= self.size
