"""Workers, queues and workflows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final

from workron.models.jobs import TERMINAL, Status


class NoLimit(Enum):
    """Removes a limit."""

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
    """Its running jobs, oldest first; at most 100."""
    draining: bool = False
    """It claims no more jobs and stops after its last one."""
    exec_addr: str | None = None
    """Its address, only for information."""
    resources: Mapping[str, int] = field(default_factory=dict)
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate: at most `jobs` starts within any period `per_ms`."""

    jobs: int
    per_ms: int


@dataclass(frozen=True, slots=True)
class QueueChange:
    """Changes to a queue; None: no change, `NO_LIMIT`: remove the limit."""

    max_pending: "int | NoLimit | None" = None
    max_running: "int | NoLimit | None" = None
    rate: "Rate | NoLimit | None" = None
    paused: bool | None = None


@dataclass(frozen=True, slots=True)
class QueueState:
    """A queue, its number of jobs in each status, and its limit of waiting jobs: its own or the default."""

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
    """The policy of a workflow for failed jobs."""

    CONTINUE = "continue"
    STOP = "stop"
    """It cancels all unstarted jobs."""


class Stopped(StrEnum):
    """Why a workflow was stopped."""

    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Workflow:
    """A workflow and its number of jobs in each status."""

    id: str
    name: str | None
    created_at_ms: int
    size: int
    counts: Mapping[Status, int]
    on_failure: OnFailure = OnFailure.CONTINUE
    stopped: Stopped | None = None
    stopped_by: str | None = None
    """The failed job."""
    final: str | None = None
    """The job that starts when all others have ended."""
    watched: bool = False
    """What becomes of its jobs matters to the workflow: it stops with the first failure, or has a final job."""
    key: str | None = None
    """Id of the API key with which it was submitted, None for the master key."""

    @property
    def finished(self) -> bool:
        return sum(self.counts.get(status, 0) for status in TERMINAL) >= self.size
