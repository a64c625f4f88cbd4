"""Bulk actions on all matching jobs, and their progress."""

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
    """The status of a bulk action."""

    RUNNING = "running"
    DONE = "done"
    ABORTED = "aborted"


ACTS_ON: Final[Mapping[Verb, Sequence[Status]]] = {
    Verb.CANCEL: (Status.SCHEDULED, Status.BLOCKED, Status.PENDING, Status.RUNNING),
    Verb.RETRY: (Status.FAILED, Status.CANCELLED),
    Verb.DELETE: tuple(status for status in Status if status in TERMINAL),
    Verb.MOVE: (Status.SCHEDULED, Status.BLOCKED, Status.PENDING),
}
"""Statuses of jobs to which each action applies."""


@dataclass(frozen=True, slots=True)
class ActionFilter:
    """A filter of jobs; None means any. `…_after` is inclusive, `…_before` exclusive."""

    status: Status | None = None
    queue: str | None = None
    name: str | None = None
    workflow: str | None = None
    error: str | None = None
    """Text contained in `error`."""
    tags: Sequence[str] = ()
    """All of them."""
    created_after_ms: int | None = None
    created_before_ms: int | None = None
    finished_after_ms: int | None = None
    finished_before_ms: int | None = None


@dataclass(frozen=True, slots=True)
class NewAction:
    """A new bulk action. `fingerprint` distinguishes a repeated request from another one with the same id."""

    id: str
    verb: Verb
    where: ActionFilter = field(default_factory=ActionFilter)
    to_queue: str | None = None
    to_priority: int | None = None
    dry_run: bool = False
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Action:
    """A stored bulk action. Of `total` jobs, `looked` were checked and `matched` matched."""

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
