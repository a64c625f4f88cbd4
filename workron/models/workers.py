"""Workers as seen by the scheduler: their status and requests to them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from workron.models import Beat, WorkerInfo


class WorkerStatus(StrEnum):
    """The status of a worker, as known to the scheduler."""

    ACTIVE = "active"
    DRAINING = "draining"
    """It was asked to stop: it claims no more jobs and leaves after its last one."""
    LOST = "lost"
    """It was silent for longer than its lease. It is forgotten after an hour."""


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A stored worker: its last description of itself, and its current status."""

    info: WorkerInfo
    last_heartbeat_at_ms: int
    status: WorkerStatus = WorkerStatus.ACTIVE

    def asked_to_drain(self) -> "WorkerState":
        """Return the worker after a drain request: a lost one stays lost."""
        return self if self.status is WorkerStatus.LOST else replace(self, status=WorkerStatus.DRAINING)


@dataclass(frozen=True, slots=True)
class WorkerPage:
    """One page of workers, by name."""

    workers: tuple[WorkerState, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Drain:
    """A request to stop: the worker's jobs may run for `timeout_ms`, None: the worker's own setting."""

    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Beats:
    """The response to a heartbeat: the status of each attempt, by fence, and a drain request, if any."""

    attempts: Mapping[int, Beat]
    drain: Drain | None = None
