"""The bodies that requests bring: strict pydantic models, and their way into the store's `NewJob`.

Unknown fields are errors and nothing is converted from another type, so that a mistake is told, not guessed around.
The limits stand in the OpenAPI document as far as JSON Schema can say them.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Annotated, Any, Final, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

from workron import models
from workron.fleet import Drain
from workron.models import DEFAULT_MAX_ATTEMPTS, DEFAULT_PRIORITY, DEFAULT_QUEUE, PRIORITIES, Dependency, When

NAME_PATTERN: Final = r"^[^\x00-\x1f\x7f]*$"
QUEUE_PATTERN: Final = r"^[A-Za-z0-9_.\-]{1,64}$"
ID_PATTERN: Final = r"^[0-9A-Za-z]{22}$"
_NO_NUL: Final = r"^[^\x00]*$"
_ENV_NAME: Final = r"^[^=\x00]+$"
RFC3339: Final = r"^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+\-]\d\d:\d\d)$"

_MIB: Final = 1024 * 1024
_YEAR_S: Final = 366 * 86_400
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_MS: Final = 253_000_000_000_000
"""A day in the year 9987: later times could not be written with four digits in every time zone."""


def _within_a_mib(text: str) -> str:
    # A character has at most four bytes: short texts need not be encoded to be measured.
    if len(text) * 4 > _MIB and len(text.encode()) > _MIB:
        raise ValueError(f"is longer than {_MIB:,} bytes")
    return text


def _whole(number: Any) -> Any:
    """Let 5.0 pass as 5: in JSON they are the same number, and some languages write no other."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


_short_enough = AfterValidator(_within_a_mib)
Text = Annotated[str, StringConstraints(max_length=_MIB, pattern=_NO_NUL), _short_enough]
Command = Annotated[str, StringConstraints(min_length=1, max_length=_MIB, pattern=_NO_NUL), _short_enough]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NAME_PATTERN)]
QueueName = Annotated[str, StringConstraints(pattern=QUEUE_PATTERN)]
EnvName = Annotated[str, StringConstraints(max_length=255, pattern=_ENV_NAME)]
Path = Annotated[str, StringConstraints(min_length=1, max_length=4096, pattern=_NO_NUL)]
Reference = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=_NO_NUL)]
or_with_a_point = BeforeValidator(_whole)
Seconds = Annotated[float, Field(le=10 * _YEAR_S, allow_inf_nan=False)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)


class DependsOn(Body):
    """A dependency with the end of the other job that satisfies it."""

    job: Reference
    """Id of a job; in a workflow also the name of one of its jobs."""
    when: When = When.DONE
    """Which end of that job satisfies the dependency; `finished` means any."""


_PROGRAM_FIRST: Final[dict[str, Any]] = {
    "prefixItems": [{"type": "string", "minLength": 1, "maxLength": _MIB, "pattern": _NO_NUL}]
}
_NEW_JOB_SCHEMA: Final[dict[str, Any]] = {
    "oneOf": [
        {"required": ["command"], "properties": {"command": {"type": "string"}, "argv": {"type": "null"}}},
        {"required": ["argv"], "properties": {"argv": {"type": "array"}, "command": {"type": "null"}}},
    ],
    "not": {
        "required": ["delay", "run_at"],
        "properties": {"delay": {"type": "number"}, "run_at": {"type": "string"}},
    },
    "examples": [
        {"command": "sha256sum *.iso > SHA256SUMS", "cwd": "/srv/images", "timeout": 600},
        {"argv": ["rsync", "-a", "out/", "backup:"], "name": "backup", "depends_on": ["01FZpY2zqTkMcXH0Vb8n3R"]},
    ],
}


class NewJob(Body):
    """A job to run: a `command` for the shell or an `argv`, and how to treat it."""

    model_config = ConfigDict(json_schema_extra=_NEW_JOB_SCHEMA)

    command: Command | None = None
    """Shell command, run by `sh -c`. Exactly one of `command` and `argv` is given."""
    argv: Annotated[list[Text], Field(min_length=1, max_length=10_000, json_schema_extra=_PROGRAM_FIRST)] | None = None
    """Program and arguments, run without a shell."""
    name: Name | None = None
    """A label for people; need not be unique, except within a workflow."""
    queue: QueueName = DEFAULT_QUEUE
    priority: Annotated[int, Field(ge=PRIORITIES[0], le=PRIORITIES[-1]), or_with_a_point] = DEFAULT_PRIORITY
    """9 is started first."""
    max_attempts: Annotated[int, Field(ge=1, le=100), or_with_a_point] = DEFAULT_MAX_ATTEMPTS
    timeout: Annotated[Seconds, Field(gt=0)] | None = None
    """Seconds after which an attempt is stopped and counts as failed."""
    delay: Annotated[Seconds, Field(ge=0)] | None = None
    """Seconds to wait before the first attempt; not together with `run_at`."""
    run_at: (
        Annotated[str, StringConstraints(pattern=RFC3339), Field(json_schema_extra={"format": "date-time"})] | None
    ) = None
    """Time of the first attempt, RFC 3339 with an offset or `Z`; one in the past means now."""
    env: Annotated[dict[EnvName, Text], Field(max_length=1000, json_schema_extra={"additionalProperties": False})] = (
        Field(default_factory=dict)
    )
    """Environment variables, added to the few that a worker passes on."""
    cwd: Path | None = None
    """Directory to run in, on the worker."""
    depends_on: Annotated[
        list[Reference | DependsOn], Field(max_length=10_000, json_schema_extra={"uniqueItems": True})
    ] = Field(default_factory=list)
    """Jobs that must end first; a plain text means that this job must end as `done`."""

    @field_validator("argv")
    @classmethod
    def _argv_is_a_program(cls, argv: list[str] | None) -> list[str] | None:
        if argv is not None:
            if not argv[0]:
                raise ValueError("the first item, the program, is empty")
            _fits(argv)
        return argv

    @field_validator("env")
    @classmethod
    def _env_fits(cls, env: dict[str, str]) -> dict[str, str]:
        if env:
            _fits(env)
            _fits(env.values())
        return env

    @field_validator("run_at")
    @classmethod
    def _run_at_is_a_time(cls, run_at: str | None) -> str | None:
        if run_at is not None:
            epoch_ms(run_at)
        return run_at

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.command is None) == (self.argv is None):
            raise ValueError("give exactly one of command and argv")
        if self.delay is not None and self.run_at is not None:
            raise ValueError("give at most one of delay and run_at")
        if len(self.depends_on) > 1 and len(set(self.parents())) < len(self.depends_on):
            raise ValueError("depends_on names a job twice")
        return self

    def parents(self) -> list[str]:
        """Return the jobs that it depends on as given: in a workflow they may be names."""
        return [item if isinstance(item, str) else item.job for item in self.depends_on]

    def dependencies(self, id_of: Mapping[str, str] = MappingProxyType({})) -> Sequence[Dependency]:
        """Return the dependencies, names replaced by ids."""
        if not self.depends_on:
            return ()
        return [
            Dependency(id_of.get(item, item))
            if isinstance(item, str)
            else Dependency(id_of.get(item.job, item.job), item.when)
            for item in self.depends_on
        ]

    def to_new_job(self, job_id: str, depends_on: Sequence[Dependency]) -> models.NewJob:
        """Return the store's form of this job under an id, with dependencies that are ids."""
        return models.NewJob(
            id=job_id,
            command=self.command,
            argv=self.argv,
            name=self.name,
            queue=self.queue,
            priority=self.priority,
            max_attempts=self.max_attempts,
            timeout_ms=None if self.timeout is None else max(1, round(self.timeout * 1000)),
            delay_ms=None if self.delay is None else round(self.delay * 1000),
            run_at_ms=None if self.run_at is None else epoch_ms(self.run_at),
            env=self.env,
            cwd=self.cwd,
            depends_on=depends_on,
        )


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

    timeout: Annotated[Seconds, Field(ge=0)] | None = None
    """Seconds; left out, the worker's own `drain_timeout`."""

    def wish(self) -> Drain:
        return Drain(None if self.timeout is None else round(self.timeout * 1000))


def _fits(texts: Iterable[str]) -> None:
    if sum(map(len, texts)) > _MIB:
        raise ValueError(f"is longer than {_MIB:,} characters in all")


def epoch_ms(text: str) -> int:
    """Return the time as milliseconds since 1970, at least 1: for the store, 0 is none."""
    at_ms = (datetime.fromisoformat(text.upper()) - _EPOCH) // timedelta(milliseconds=1)
    if at_ms > _LATEST_MS:
        raise ValueError("is too far in the future")
    return max(1, at_ms)
