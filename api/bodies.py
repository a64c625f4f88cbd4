"""The bodies that requests bring: strict pydantic models, and their way into the store's `NewJob`.

Unknown fields are errors and nothing is converted from another type, so that a mistake is told, not guessed around.
The limits stand in the OpenAPI document as far as JSON Schema can say them.
"""

from typing import Annotated

from pydantic import (
    ConfigDict,
    FailFast,
    Field,
)

from api.fields import Body, Name, Seconds, or_with_a_point
from api.job_body import NewJob
from workron.fleet import Drain


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


class QueueChange(Body):
    """What to change of a queue."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"max_pending": 10_000}, {"max_pending": None}]})

    max_pending: Annotated[int, Field(ge=0, le=2**31), or_with_a_point] | None
    """Most jobs that may wait (pending, scheduled, blocked); null: what is set for all queues, if anything is."""


class Run(Body):
    """The run that a cancel or retry is meant for; the present one if left out."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"run": 1}]})

    run: Annotated[int, Field(ge=1, le=2**31), or_with_a_point] | None = None


class DrainTime(Body):
    """How long the jobs of a worker that drains may go on."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"timeout": 600}]})

    timeout: Seconds | None = None
    """Seconds; left out, the worker's own `drain_timeout`."""

    def wish(self) -> Drain:
        return Drain(None if self.timeout is None else round(self.timeout * 1000))
