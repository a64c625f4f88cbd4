"""The body of a request for a bulk action."""

from typing import Annotated, Final, Self

from pydantic import AfterValidator, ConfigDict, Field, JsonValue, StringConstraints, model_validator

from workron.models import PRIORITIES, Status
from workron.models.actions import ACTS_ON, ActionFilter, NewAction, Verb
from workron.models.job_fields import NO_NUL
from workron.specs.fields import (
    ID_PATTERN,
    RFC3339,
    Body,
    Name,
    QueueName,
    epoch_ms,
    or_with_a_point,
)
from workron.specs.job_fields import Tag


def _is_a_time(text: str) -> str:
    epoch_ms(text)
    return text


Moment = Annotated[
    str,
    StringConstraints(pattern=RFC3339),
    Field(json_schema_extra={"format": "date-time"}),
    AfterValidator(_is_a_time),
]
_EXAMPLES: Final[list[JsonValue]] = [
    {"action": "retry", "filter": {"queue": "reports", "error": "disk full"}},
    {"action": "move", "filter": {"queue": "reports"}, "to": {"queue": "slow", "priority": 3}},
    {"action": "delete", "filter": {"status": "done", "finished_before": "2030-01-01T00:00:00Z"}, "dry_run": True},
]


class Filter(Body):
    """A filter: selects the jobs that match all of its fields."""

    status: Status | None = None
    """By default all statuses to which the action applies."""
    queue: QueueName | None = None
    name: Name | None = None
    workflow: Annotated[str, StringConstraints(pattern=ID_PATTERN)] | None = None
    error: Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=NO_NUL)] | None = None
    """Text contained in the job's `error`."""
    tag: Annotated[list[Tag], Field(max_length=50)] = Field(default_factory=list)
    """Tags, all of which the job must have."""
    created_after: Moment | None = None
    created_before: Moment | None = None
    finished_after: Moment | None = None
    finished_before: Moment | None = None

    def to_filter(self) -> ActionFilter:
        return ActionFilter(
            status=self.status,
            queue=self.queue,
            name=self.name,
            workflow=self.workflow,
            error=self.error,
            tags=self.tag,
            created_after_ms=_ms(self.created_after),
            created_before_ms=_ms(self.created_before),
            finished_after_ms=_ms(self.finished_after),
            finished_before_ms=_ms(self.finished_before),
        )


class Destination(Body):
    """Target of a move; fields left out stay unchanged."""

    queue: QueueName | None = None
    priority: Annotated[int, Field(ge=PRIORITIES[0], le=PRIORITIES[-1]), or_with_a_point] | None = None


class NewBulkAction(Body):
    """An action on all matching jobs. Jobs submitted later are not affected."""

    model_config = ConfigDict(json_schema_extra={"examples": _EXAMPLES})

    action: Verb
    filter: Filter
    """`{}` selects all jobs."""
    to: Destination | None = None
    """Required for `move`, not allowed otherwise."""
    dry_run: bool = False
    """Only count the matching jobs."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        status = self.filter.status
        if status is not None and status not in ACTS_ON[self.action]:
            raise ValueError(f"{self.action} applies to jobs that are {', '.join(ACTS_ON[self.action])}, not {status}")
        somewhere = self.to is not None and (self.to.queue, self.to.priority) != (None, None)
        if somewhere != (self.action is Verb.MOVE):
            raise ValueError("`to`, with a queue or a priority, is required for move and not allowed otherwise")
        return self

    def to_action(self, action_id: str, fingerprint: str) -> NewAction:
        return NewAction(
            action_id,
            self.action,
            self.filter.to_filter(),
            to_queue=self.to.queue if self.to else None,
            to_priority=self.to.priority if self.to else None,
            dry_run=self.dry_run,
            fingerprint=fingerprint,
        )


def _ms(text: str | None) -> int | None:
    return None if text is None else epoch_ms(text)
