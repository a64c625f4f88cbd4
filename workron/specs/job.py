"""A job in a request, and its conversion to the store's `NewJob`."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Final, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue

from workron import ids, models
from workron.durations import to_ms
from workron.models import Dependency, Until, When
from workron.models.job_fields import NO_NUL
from workron.specs.fields import Body, Reference, Seconds, or_with_a_point
from workron.specs.job_fields import Concurrency, ListOfExitCodes, Retry, Unique
from workron.specs.moments import AnyMoment, MomentToCome, is_before
from workron.specs.plain import PlainJob, copy

_ARRAY_SCHEMA: Final[dict[str, Any]] = {
    "oneOf": [
        {"required": ["size"], "properties": {"size": {"type": "integer"}, "values": {"type": "null"}}},
        {"required": ["values"], "properties": {"values": {"type": "array"}, "size": {"type": "null"}}},
    ],
    "examples": [{"size": 100, "max_parallel": 10}, {"values": ["ada", "grace", "barbara"]}],
}
MOST_JOBS: Final = 100_000
"""Per submission."""
MOST_VALUES: Final = 1_000_000
Value = Annotated[str, StringConstraints(max_length=32_768, pattern=NO_NUL)]


class DependsOn(Body):
    """A dependency and the final status that satisfies it."""

    job: Reference
    """Id of a job; in a workflow also the name of one of its jobs."""
    when: When = When.DONE
    """The final status of that job that satisfies the dependency; `finished` means any."""
    matching: bool = False
    """For two arrays of the same size: each task depends only on the task with its index."""


class NewArray(Body):
    """Runs a job as many tasks; `$WORKRON_ARRAY_INDEX` and `$WORKRON_ARRAY_VALUE` identify a task."""

    model_config = ConfigDict(json_schema_extra=_ARRAY_SCHEMA)

    size: Annotated[int, Field(ge=1, le=1_000_000), or_with_a_point] | None = None
    """Number of tasks. Exactly one of `size` and `values` is given."""
    values: Annotated[list[Value], Field(min_length=1, max_length=MOST_VALUES)] | None = None
    """A value for each task."""
    max_parallel: Annotated[int, Field(ge=1, le=1_000_000), or_with_a_point] | None = None
    """Maximum of unfinished tasks at a time."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.size is None) == (self.values is None):
            raise ValueError("give exactly one of size and values")
        return self

    def to_new_array(self) -> models.NewArray:
        size = len(self.values) if self.values is not None else self.size or 0
        return models.NewArray(ids.new_id(), size, self.values, self.max_parallel)


def _with_field(array: Any) -> Any:
    """Return the short forms, a size or a list of values, as the object for which they stand."""
    if isinstance(array, list):
        return {"values": array}
    return {"size": array} if isinstance(array, int | float) and not isinstance(array, bool) else array


class _ShortForms:
    """Describes an array with its short forms."""

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        whole = handler(core_schema)
        fields = handler.resolve_ref_schema(whole)["properties"]
        return {"anyOf": [whole, *(fields[name]["anyOf"][0] for name in ("size", "values"))]}


AnyArray = Annotated[NewArray, BeforeValidator(_with_field), _ShortForms()]

_NEW_JOB_SCHEMA: Final[dict[str, Any]] = {
    "oneOf": [
        {"required": ["command"], "properties": {"command": {"type": "string"}, "argv": {"type": "null"}}},
        {"required": ["argv"], "properties": {"argv": {"type": "array"}, "command": {"type": "null"}}},
    ],
    "not": {
        "required": ["delay", "run_at"],
        "properties": {"delay": {"type": ["number", "string"]}, "run_at": {"type": ["number", "string"]}},
    },
    "examples": [
        {"command": "sha256sum *.iso > SHA256SUMS", "cwd": "/srv/images", "timeout": 600},
        {"argv": ["rsync", "-a", "out/", "backup:"], "name": "backup", "depends_on": ["01FZpY2zqTkMcXH0Vb8n3R"]},
    ],
}


class NewJob(PlainJob):
    """A job to run: a shell `command` or an `argv`, and its options."""

    model_config = ConfigDict(json_schema_extra=_NEW_JOB_SCHEMA)

    array: AnyArray | None = None
    """Run the job as an array of tasks; it ends when all tasks have ended. A number is short for `size`, a list
    for `values`."""
    concurrency: Concurrency | None = None
    """A key shared with other jobs, and how many jobs with that key may run at a time."""
    unique: Unique | None = None
    """A key that only one job at a time holds, and the policy for other jobs with this key."""
    retry: Retry | None = None
    """Delays between attempts."""
    retry_on_exit: ListOfExitCodes = Field(default_factory=list)
    """Exit codes and ranges like `64-78`: only these are retried. Empty: all are retried."""
    no_retry_on_exit: ListOfExitCodes = Field(default_factory=list)
    """Exit codes and ranges that are never retried; takes precedence."""
    delay: Seconds | None = None
    """Delay before the first attempt: seconds, or like `30s`; not together with `run_at`."""
    run_at: AnyMoment | None = None
    """Time of the first attempt, RFC 3339 with an offset or `Z`; a past time means now. Or a duration, like `delay`."""
    deadline: MomentToCome | None = None
    """The job fails (reason `expired`) and its command is stopped unless it has ended by then: a time (RFC 3339),
    or a duration counted from the submission and again from each retry."""
    expires: MomentToCome | None = None
    """The job is cancelled (reason `expired`) unless it has started by then; same format as `deadline`."""
    depends_on: Annotated[
        list[Reference | DependsOn], Field(max_length=10_000, json_schema_extra={"uniqueItems": True})
    ] = Field(default_factory=list)
    """Jobs that must end first; a plain string means that this job must end as `done`."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.command is None) == (self.argv is None):
            raise ValueError("give exactly one of command and argv")
        if self.array is not None and self.unique is not None and self.unique.until is Until.STARTED:
            raise ValueError("an array holds its unique key until it has finished")
        if self.delay is not None and self.run_at is not None:
            raise ValueError("give at most one of delay and run_at")
        if self.deadline is not None or self.expires is not None:
            self._may_start()
        if len(self.depends_on) > 1 and len(set(self.parents())) < len(self.depends_on):
            raise ValueError("depends_on names a job twice")
        return self

    def _may_start(self) -> None:
        start = self.run_at if self.delay is None else models.Moment(after_ms=to_ms(self.delay))
        for name, end in (("deadline", self.deadline), ("expires", self.expires)):
            if start is not None and end is not None and is_before(end, start):
                raise ValueError(f"{name} is before the time at which the job may start")

    @property
    def last(self) -> bool:
        """Whether it is the final job of its workflow."""
        return False

    def parents(self) -> list[str]:
        """Return the dependencies as given: in a workflow they may be names."""
        return [item if isinstance(item, str) else item.job for item in self.depends_on]

    def dependencies(self, id_of: Mapping[str, str] = MappingProxyType({})) -> Sequence[Dependency]:
        """Return the dependencies with names replaced by ids."""
        if not self.depends_on:
            return ()
        return [
            Dependency(id_of.get(item, item))
            if isinstance(item, str)
            else Dependency(id_of.get(item.job, item.job), item.when, item.matching)
            for item in self.depends_on
        ]

    def _concurrency(self) -> models.Concurrency | None:
        return None if self.concurrency is None else models.Concurrency(self.concurrency.key, self.concurrency.limit)

    def to_new_job(self, job_id: str, depends_on: Sequence[Dependency]) -> models.NewJob:
        """Return the store's form of this job with this id and dependencies given as ids."""
        job = models.NewJob(
            id=job_id,
            array=None if self.array is None else self.array.to_new_array(),
            concurrency=self._concurrency(),
            unique=None if self.unique is None else self.unique.to_unique(),
            retry=None if self.retry is None else self.retry.to_policy(),
            retry_on_exit=self.retry_on_exit,
            no_retry_on_exit=self.no_retry_on_exit,
            delay_ms=_delay_ms(self.delay, self.run_at),
            run_at_ms=None if self.run_at is None else self.run_at.at_ms,
            deadline=self.deadline,
            expires=self.expires,
            depends_on=depends_on,
            final=self.last,
        )
        copy(self, job)
        return job


def _delay_ms(delay: float | None, run_at: models.Moment | None) -> int | None:
    if delay is not None:
        return to_ms(delay)
    return None if run_at is None else run_at.after_ms
