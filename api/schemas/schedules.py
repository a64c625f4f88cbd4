"""Schedules, as the API returns them."""

from itertools import islice
from typing import Any, Final

from api.schemas.base import Answer, Time, time_or_none
from workron.schedules import words
from workron.schedules.models import CatchUp, Overlap, Run, RunOutcome, Schedule
from workron.schedules.plan import times_of
from workron.schedules.times import Dst
from workron.times import rfc3339

_SHOWN: Final = 5


class NextRun(Answer):
    """A time at which a schedule will fire."""

    at: Time
    words: str
    """Local time in the schedule's time zone."""


class ScheduleRun(Answer):
    """The outcome of an occurrence; a series of skipped, missed or refused ones is one entry with the first time."""

    at: Time
    outcome: RunOutcome
    """`manual`: started by a request. `skipped`: an earlier run was unfinished, or see `error`. `missed`: it could not
    be started in time. `refused`: its jobs can't be stored, see `error`."""
    count: int
    recorded_at: Time
    job: str | None
    workflow: str | None
    error: str | None


class ScheduleSummary(Answer):
    """A schedule without its job or workflow."""

    name: str
    cron: str
    timezone: str
    description: str
    """When it fires, in words."""
    dst: Dst
    overlap: Overlap
    catch_up: CatchUp
    paused: bool
    created_at: Time
    updated_at: Time
    next_run_at: Time | None
    """Null while it is paused."""
    queued: Time | None
    """An occurrence waiting for the end of an earlier run."""
    counts: dict[RunOutcome, int]


class ScheduleState(ScheduleSummary):
    """A schedule with its next 5 runs and its last 20, the newest first."""

    job: dict[str, Any] | None
    """The body of a submission, as given."""
    workflow: dict[str, Any] | None
    next_runs: list[NextRun]
    runs: list[ScheduleRun]


class ScheduleList(Answer):
    """Schedules by name."""

    data: list[ScheduleSummary]
    next_cursor: str | None


def summary_document(schedule: Schedule) -> dict[str, Any]:
    definition = schedule.definition
    return {
        "name": schedule.name,
        "cron": definition.cron,
        "timezone": definition.timezone,
        "description": words.when(definition.cron, definition.timezone),
        "dst": definition.dst,
        "overlap": definition.overlap,
        "catch_up": definition.catch_up,
        "paused": definition.paused,
        "created_at": rfc3339(schedule.created_at_ms),
        "updated_at": rfc3339(schedule.updated_at_ms),
        "next_run_at": time_or_none(schedule.next_at_ms),
        "queued": time_or_none(schedule.queued_at_ms),
        "counts": {outcome.value: count for outcome, count in schedule.counts.items()},
    }


def schedule_document(schedule: Schedule) -> dict[str, Any]:
    definition = schedule.definition
    return {
        **summary_document(schedule),
        "job": None if definition.is_workflow else definition.work,
        "workflow": definition.work if definition.is_workflow else None,
        "next_runs": [
            {"at": rfc3339(at_ms), "words": words.moment(at_ms, definition.timezone)} for at_ms in _next(schedule)
        ],
        "runs": [run_document(run) for run in schedule.runs],
    }


def run_document(run: Run) -> dict[str, Any]:
    return {
        "at": rfc3339(run.at_ms),
        "outcome": run.outcome,
        "count": run.count,
        "recorded_at": rfc3339(run.recorded_at_ms),
        "job": run.job,
        "workflow": run.workflow,
        "error": run.error,
    }


def _next(schedule: Schedule) -> list[int]:
    first = schedule.next_at_ms
    if first is None:
        return []
    return [first, *islice(times_of(schedule).upcoming(first), _SHOWN - 1)]
