"""Bulk actions: what is to be done with all jobs that match, and how far it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from workron.models.jobs import TERMINAL, Status


class Verb(StrEnum):
    """What a bulk action does with each job."""

    CANCEL = "cancel"
    RETRY = "retry"
    DELETE = "delete"
    MOVE = "move"


class ActionState(StrEnum):
    """Where a bulk action is."""

    RUNNING = "running"
    DONE = "done"
    ABORTED = "aborted"


ACTS_ON: Final[Mapping[Verb, Sequence[Status]]] = {
    Verb.CANCEL: (Status.SCHEDULED, Status.BLOCKED, Status.PENDING, Status.RUNNING),
    Verb.RETRY: (Status.FAILED, Status.CANCELLED),
    Verb.DELETE: tuple(status for status in Status if status in TERMINAL),
    Verb.MOVE: (Status.SCHEDULED, Status.BLOCKED, Status.PENDING),
}
"""In which status a job can be for it."""


@dataclass(frozen=True, slots=True)
class ActionFilter:
    """Which jobs are meant; None means any. Of times, `…_after` is included and `…_before` is not."""

    status: Status | None = None
    queue: str | None = None
    name: str | None = None
    workflow: str | None = None
    error: str | None = None
    """A text that `error` contains."""
    tags: Sequence[str] = ()
    """All of them."""
    created_after_ms: int | None = None
    created_before_ms: int | None = None
    finished_after_ms: int | None = None
    finished_before_ms: int | None = None


@dataclass(frozen=True, slots=True)
class NewAction:
    """A bulk action as ordered. `fingerprint` tells a repeat of the order from another one under its id."""

    id: str
    verb: Verb
    where: ActionFilter = field(default_factory=ActionFilter)
    to_queue: str | None = None
    to_priority: int | None = None
    dry_run: bool = False
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Action:
    """A bulk action as stored. Of `total` jobs to look at, `looked` have been, of which `matched` did."""

    id: str
    verb: Verb
    state: ActionState
    where: ActionFilter
    to_queue: str | None
    to_priority: int | None
    dry_run: bool
    created_at_ms: int
    finished_at_ms: int | None
    total: int
    looked: int
    matched: int
    done: int
    failed: int
    first_error: str | None
