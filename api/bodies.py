"""The bodies that requests bring: strict pydantic models, and their way into the store's `NewJob`.

Unknown fields are errors and nothing is converted from another type, so that a mistake is told, not guessed around.
The limits stand in the OpenAPI document as far as JSON Schema can say them.
"""

from typing import Annotated, Final, Self, TypeVar

from pydantic import (
    ConfigDict,
    FailFast,
    Field,
    StringConstraints,
    model_validator,
)

from api.fields import Body, Name, Seconds, or_with_a_point
from api.job_body import NewJob
from workron import models
from workron.errors import InvalidRequest
from workron.fleet import Drain

T = TypeVar("T")
TASKS_PATTERN: Final = r"^\d{1,7}(-\d{1,7})?(,\d{1,7}(-\d{1,7})?)*$"
MOST_TASKS: Final = 100_000


class NewJobs(Body):
    """Many independent jobs, stored all or none."""

    jobs: Annotated[list[NewJob], FailFast(), Field(min_length=1, max_length=100_000)]


class NewWorkflow(Body):
    """Jobs that depend on each other by name, stored all or none."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "nightly",
                    "jobs": [
                        {"name": "build", "command": "make"},
                        {"name": "test", "command": "make test", "depends_on": ["build"]},
                        {"name": "mail", "command": "./mail", "depends_on": [{"job": "test", "when": "failed"}]},
                    ],
                }
            ]
        },
    )

    name: Name | None = None
    jobs: Annotated[list[NewJob], FailFast(), Field(min_length=1, max_length=100_000)]


class Rate(Body):
    """At most so many starts in any time of this length."""

    jobs: Annotated[int, Field(ge=1, le=10_000), or_with_a_point]
    per: Annotated[float, Field(gt=0, le=7 * 86_400, allow_inf_nan=False)]
    """Seconds."""


class QueueChange(Body):
    """What to change of a queue."""

    model_config = ConfigDict(
        json_schema_extra={
            "minProperties": 1,
            "examples": [{"max_pending": 10_000}, {"max_running": 4, "rate": {"jobs": 100, "per": 60}}],
        }
    )

    max_pending: Annotated[int, Field(ge=0, le=2**31), or_with_a_point] | None = None
    """Most jobs that may wait (pending, scheduled, blocked); null: what is set for all queues, if anything is."""
    max_running: Annotated[int, Field(ge=1, le=2**31), or_with_a_point] | None = None
    """Most jobs that may run at once; null: no limit."""
    rate: Rate | None = None
    """Most jobs that may start in a time; null: no limit."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("give max_pending, max_running or rate")
        return self

    def to_change(self) -> models.QueueChange:
        """Return the change; what was left out stays as it is."""

        def limit(name: str, value: T | None) -> T | models.NoLimit | None:
            return models.NO_LIMIT if value is None and name in self.model_fields_set else value

        rate = None if self.rate is None else models.Rate(self.rate.jobs, max(1, round(self.rate.per * 1000)))
        return models.QueueChange(
            max_pending=limit("max_pending", self.max_pending),
            max_running=limit("max_running", self.max_running),
            rate=limit("rate", rate),
        )


class Run(Body):
    """The run that a cancel or retry is meant for; the present one if left out."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"run": 1}]})

    run: Annotated[int, Field(ge=1, le=2**31), or_with_a_point] | None = None


class Steering(Run):
    """What a cancel or retry is meant for."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"run": 1}, {"tasks": "0-9,20"}]})

    tasks: Annotated[str, StringConstraints(max_length=10_000, pattern=TASKS_PATTERN)] | None = None
    """Indexes of tasks, for the job of an array: only these; otherwise all of them."""

    def indexes(self) -> list[int] | None:
        """Return the indexes that `tasks` names, in order; ValueError if they are too many."""
        if self.tasks is None:
            return None
        found: set[int] = set()
        for part in self.tasks.split(","):
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
            if len(found) > MOST_TASKS:
                raise InvalidRequest(f"names more than {MOST_TASKS:,} tasks", field="tasks")
        if not found:
            raise InvalidRequest("names no task", field="tasks")
        return sorted(found)


class DrainTime(Body):
    """How long the jobs of a worker that drains may go on."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"timeout": 600}]})

    timeout: Seconds | None = None
    """Seconds; left out, the worker's own `drain_timeout`."""

    def wish(self) -> Drain:
        return Drain(None if self.timeout is None else round(self.timeout * 1000))
