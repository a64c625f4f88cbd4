"""Schedules as stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from workron.models import NewJob
from workron.schedules.times import Dst

SHOWN_RUNS: Final = 20
"""Number of runs that a schedule remembers."""


class Overlap(StrEnum):
    """What happens at the time of an occurrence while an earlier one has not ended."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE = "queue"


class CatchUp(StrEnum):
    """Which missed occurrences are started."""

    NONE = "none"
    LAST = "last"
    ALL = "all"


class RunOutcome(StrEnum):
    """The outcome of an occurrence."""

    FIRED = "fired"
    MANUAL = "manual"
    SKIPPED = "skipped"
    MISSED = "missed"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Run:
    """An occurrence with its outcome, or `count` of them in a row that were skipped, missed or refused."""

    at_ms: int
    outcome: RunOutcome
    count: int
    recorded_at_ms: int
    job: str | None = None
    workflow: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition of a schedule. `work` is the body of a submission: a job or a workflow."""

    cron: str
    timezone: str
    dst: Dst
    overlap: Overlap
    catch_up: CatchUp
    paused: bool
    work: Mapping[str, Any]
    is_workflow: bool = False
    key: str | None = None
    """Id of the API key that it was put with, and its jobs are submitted with."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as stored. `next_at_ms` is None while it is paused, or when its time never comes again."""

    name: str
    version: str
    """Another one after each change."""
    definition: Definition
    created_at_ms: int
    updated_at_ms: int
    next_at_ms: int | None
    last_at_ms: int | None
    """The newest occurrence that was dealt with."""
    queued_at_ms: int | None
    """An occurrence that waits for the end of an earlier one."""
    counts: Mapping[RunOutcome, int]
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class SchedulePage:
    """One page of a listing, by name."""

    schedules: tuple[Schedule, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Work:
    """The jobs of an occurrence, with ids that are yet to be replaced; `options` are those of `Store.submit`."""

    jobs: Sequence[NewJob]
    options: Mapping[str, Any] = field(default_factory=dict)
