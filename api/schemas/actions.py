"""Bulk actions, as the API answers them."""

from typing import Any

from api.schemas.base import Answer, Time, time_or_none
from workron.models import Status
from workron.models.actions import Action, ActionState, Verb
from workron.times import rfc3339


class ActionFilter(Answer):
    """Which jobs are meant; null: any."""

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
    """A bulk action and how far it is."""

    id: str
    action: Verb
    state: ActionState
    filter: ActionFilter
    to: Destination | None
    dry_run: bool
    created_at: Time
    finished_at: Time | None
    total: int
    """Jobs to look at, as far as was known at the beginning."""
    looked: int
    """Jobs that were looked at."""
    matched: int
    done: int
    failed: int
    """Jobs that matched, but with which it could not be done."""
    first_error: str | None
    """The first of these, and why."""


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
