"""Workers as the scheduler sees them: how they are, and what is wanted of them. Plain frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from workron.models import Beat, WorkerInfo


class WorkerStatus(StrEnum):
    """How a worker is, as far as the scheduler knows."""

    ACTIVE = "active"
    DRAINING = "draining"
    """It was told to stop: it claims no more, and goes when its jobs have ended."""
    LOST = "lost"
    """It has been silent for longer than its lease. After an hour it is forgotten."""


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A worker as stored: what it said of itself with its last heartbeat, and what that means now."""

    info: WorkerInfo
    last_heartbeat_at_ms: int
    status: WorkerStatus = WorkerStatus.ACTIVE

    def asked_to_drain(self) -> "WorkerState":
        """Return how it is once it was asked to: a lost one is lost all the same."""
        return self if self.status is WorkerStatus.LOST else replace(self, status=WorkerStatus.DRAINING)


@dataclass(frozen=True, slots=True)
class WorkerPage:
    """One page of workers, by name."""

    workers: tuple[WorkerState, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Drain:
    """The wish that a worker stops: its jobs may go on for `timeout_ms`, None: as long as it is set to itself."""

    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Beats:
    """The answer to a heartbeat: how each attempt is, by fence, and whether the worker is to stop."""

    attempts: Mapping[int, Beat]
    drain: Drain | None = None
