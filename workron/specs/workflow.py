"""Request bodies: strict pydantic models, and their conversion to the store's `NewJob`.

Unknown fields are errors and types are not coerced, so that mistakes are reported.
The OpenAPI document has the limits as far as JSON Schema can express them.
"""

from typing import Annotated, Final, Self, TypeVar

from pydantic import (
    ConfigDict,
    FailFast,
    Field,
    StringConstraints,
    model_validator,
)

from workron import models
from workron.durations import to_ms
from workron.errors import InvalidRequest
from workron.models import OnFailure
from workron.models.workers import Drain
from workron.specs.fields import Body, Name, Seconds, or_with_a_point
from workron.specs.job import MOST_JOBS, NewJob

T = TypeVar("T")
TASKS_PATTERN: Final = r"^\d{1,7}(-\d{1,7})?(,\d{1,7}(-\d{1,7})?)*$"
MOST_TASKS: Final = 100_000


class ManyJobs(Body):
    """A body with a list of `jobs`; a large one is validated in pieces (`api/http/large.py`)."""

    def check(self) -> None:
        """Raise ValueError for errors that concern several jobs."""


class NewJobs(ManyJobs):
    """Many independent jobs, stored all or nothing."""

    jobs: Annotated[list[NewJob], FailFast(), Field(min_length=1, max_length=MOST_JOBS)]


class WorkflowJob(NewJob):
    """A job of a workflow."""

    final: bool = False
    """Run the job after all others have ended, whatever their status; only one job, without array and dependencies."""

    @property
    def last(self) -> bool:
        return self.final

    @model_validator(mode="after")
    def _final_is_plain(self) -> Self:
        if self.final and (self.depends_on or self.array):
            raise ValueError("a final job has no depends_on and no array: it waits for all others anyway")
        return self


class NewWorkflow(ManyJobs):
    """Jobs that depend on each other by name, stored all or nothing."""

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
    on_failure: OnFailure = OnFailure.CONTINUE
    """`stop`: the first failed job cancels all unstarted jobs; running jobs continue."""
    jobs: Annotated[list[WorkflowJob], FailFast(), Field(min_length=1, max_length=MOST_JOBS)]

    @model_validator(mode="after")
    def _one_final_job(self) -> Self:
        self.check()
        return self

    def check(self) -> None:
        final = [job for job in self.jobs if job.final]
        if len(final) > 1:
            raise ValueError("a workflow can have only one final job")
        if final and final[0].name and any(final[0].name in job.parents() for job in self.jobs):
            raise ValueError("no job can depend on the final one")


class MoreJobs(ManyJobs):
    """Jobs to add to a workflow: they depend on each other and on its jobs by name or id."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"jobs": [{"name": "publish", "command": "./publish"}]}]},
    )

    jobs: Annotated[list[NewJob], FailFast(), Field(min_length=1, max_length=MOST_JOBS)]


class Rate(Body):
    """A rate: at most `jobs` starts within any period `per`."""

    jobs: Annotated[int, Field(ge=1, le=10_000), or_with_a_point]
    per: Annotated[float, Field(gt=0, le=7 * 86_400, allow_inf_nan=False)]
    """Seconds."""


class QueueChange(Body):
    """Changes to the settings of a queue."""

    model_config = ConfigDict(
        json_schema_extra={
            "minProperties": 1,
            "examples": [{"max_pending": 10_000}, {"max_running": 4, "rate": {"jobs": 100, "per": 60}}],
        }
    )

    max_pending: Annotated[int, Field(ge=0, le=2**31), or_with_a_point] | None = None
    """Maximum of waiting jobs (pending, scheduled, blocked); null: the default of all queues, if any."""
    max_running: Annotated[int, Field(ge=1, le=2**31), or_with_a_point] | None = None
    """Maximum of running jobs; null: no limit."""
    rate: Rate | None = None
    """Maximum rate of starts; null: no limit."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("give max_pending, max_running or rate")
        return self

    def to_change(self) -> models.QueueChange:
        """Return the change; fields left out stay unchanged."""

        def limit(name: str, value: T | None) -> T | models.NoLimit | None:
            return models.NO_LIMIT if value is None and name in self.model_fields_set else value

        rate = None if self.rate is None else models.Rate(self.rate.jobs, to_ms(self.rate.per))
        return models.QueueChange(
            max_pending=limit("max_pending", self.max_pending),
            max_running=limit("max_running", self.max_running),
            rate=limit("rate", rate),
        )


class Run(Body):
    """The run to cancel or retry; by default the current one."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"run": 1}]})

    run: Annotated[int, Field(ge=1, le=2**31), or_with_a_point] | None = None


class Steering(Run):
    """The target of a cancel or retry."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"run": 1}, {"tasks": "0-9,20"}]})

    tasks: Annotated[str, StringConstraints(max_length=10_000, pattern=TASKS_PATTERN)] | None = None
    """Indexes of an array's tasks; by default all tasks."""

    def indexes(self) -> list[int] | None:
        """Return the indexes in `tasks`, in order; raise an error if there are too many or none."""
        if self.tasks is None:
            return None
        found: list[int] = []
        for first, last in sorted(_span(part) for part in self.tasks.split(",")):
            more = range(max(first, found[-1] + 1 if found else 0), last + 1)
            if len(found) + len(more) > MOST_TASKS:  # before they are made: a few characters may name ten millions
                raise InvalidRequest(f"selects more than {MOST_TASKS:,} tasks", field="tasks")
            found += more
        if not found:
            raise InvalidRequest("selects no task", field="tasks")
        return found


def _span(part: str) -> tuple[int, int]:
    first, _, last = part.partition("-")
    return int(first), int(last or first)


class Cancel(Steering):
    """The target of a cancel."""

    model_config = ConfigDict(
        json_schema_extra={
            "not": {
                "required": ["cascade", "tasks"],
                "properties": {"cascade": {"const": True}, "tasks": {"type": "string"}},
            },
            "examples": [{"run": 1}, {"cascade": True}],
        }
    )

    cascade: bool = False
    """Also cancel all jobs that depend on it, directly or indirectly."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.cascade and self.tasks is not None:
            raise ValueError("cascade applies to the whole job, not to some tasks")
        return self


class DrainTime(Body):
    """How long the jobs of a draining worker may keep running."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"timeout": 600}]})

    timeout: Seconds | None = None
    """Seconds; by default the worker's own `drain_timeout`."""

    def wish(self) -> Drain:
        return Drain(to_ms(self.timeout))
