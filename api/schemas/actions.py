"""Bulk actions, as the API returns them."""

from typing import Any

from api.schemas.base import Answer, Time, time_or_none
from workron.models import Status
from workron.models.actions import Action, ActionState, Verb
from workron.times import rfc3339


class ActionFilter(Answer):
    """The filter of a bulk action; null: any value."""

    status: Status | None
    queue: str | None
    name: str | None
    workflow: str | None
    error: str | None
    tag: list[str]
    created_after: Time | None
    created_before: Time | None
    finished_after: Time | None
    finished_before: Time | None


class Destination(Answer):
    queue: str | None
    priority: int | None


class BulkAction(Answer):
    """A bulk action and its progress."""

    id: str
    action: Verb
    state: ActionState
    filter: ActionFilter
    to: Destination | None
    dry_run: bool
    created_at: Time
    finished_at: Time | None
    total: int
    """Number of jobs to check, as estimated at the beginning."""
    looked: int
    """Number of jobs checked."""
    matched: int
    done: int
    failed: int
    """Number of matching jobs for which the action failed."""
    first_error: str | None
    """The first of these failures, with their reasons."""


class ActionList(Answer):
    data: list[BulkAction]


def action_document(action: Action) -> dict[str, Any]:
    where = action.where
    moves = action.to_queue is not None or action.to_priority is not None
    return {
        "id": action.id,
        "action": action.verb,
        "state": action.state,
        "filter": {
            "status": where.status,
            "queue": where.queue,
            "name": where.name,
            "workflow": where.workflow,
            "error": where.error,
            "tag": list(where.tags),
            "created_after": time_or_none(where.created_after_ms),
            "created_before": time_or_none(where.created_before_ms),
            "finished_after": time_or_none(where.finished_after_ms),
            "finished_before": time_or_none(where.finished_before_ms),
        },
        "to": {"queue": action.to_queue, "priority": action.to_priority} if moves else None,
        "dry_run": action.dry_run,
        "created_at": rfc3339(action.created_at_ms),
        "finished_at": time_or_none(action.finished_at_ms),
        "total": action.total,
        "looked": action.looked,
        "matched": action.matched,
        "done": action.done,
        "failed": action.failed,
        "first_error": action.first_error,
    }
