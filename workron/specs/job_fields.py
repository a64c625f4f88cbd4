"""Groups of related fields of a job: retry policy, concurrency, unique key, labels."""

from typing import Annotated, Any, Final

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints

from workron import models
from workron.durations import to_ms
from workron.models import UNIQUE_MS, OnConflict, Until, user_json
from workron.models.job_fields import MIB, NAME_PATTERN, NO_NUL
from workron.models.retry import RetryPolicy
from workron.specs.fields import Body, EnvName, Seconds, SomeSeconds, Text, fits, or_with_a_point

_CODE: Final = "([1-9]|[1-9][0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5])"
KEY_PATTERN: Final = r"^[A-Za-z0-9_.\-]{1,128}$"
ExitCode = Annotated[int, Field(ge=1, le=255), or_with_a_point]
CODES_PATTERN: Final = f"^{_CODE}-{_CODE}$"
ExitCodes = Annotated[str, StringConstraints(pattern=CODES_PATTERN)]
"""A range, both ends included."""


class Concurrency(Body):
    """At most `limit` jobs with this key run at a time, in all queues together; the others wait in order."""

    key: Annotated[str, StringConstraints(pattern=KEY_PATTERN)]
    """Up to 128 of the characters allowed in names of queues."""
    limit: Annotated[int, Field(ge=1, le=100_000), or_with_a_point]
    """The limit of the latest job applies to all."""


class Retry(Body):
    """Delays between attempts: `delay`, then multiplied by `factor` each time, at most `max_delay`."""

    delay: Annotated[Seconds, Field(ge=0)] | None = None
    """Seconds before the second attempt; default: the setting `retry_delay` (1 s)."""
    factor: Annotated[float, Field(ge=1, le=100, allow_inf_nan=False)] | None = None
    """2 by default; 1: constant delay."""
    max_delay: Annotated[Seconds, Field(ge=0)] | None = None
    """Seconds; default: the setting `retry_max_delay` (an hour), or `delay` if that is longer."""
    jitter: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    """Random share of each delay: 0.5 by default, so that a delay of 8 s becomes 4 to 8 s."""

    def to_policy(self) -> RetryPolicy | None:
        policy = RetryPolicy(to_ms(self.delay), self.factor, to_ms(self.max_delay), self.jitter)
        return None if policy == RetryPolicy() else policy


def in_order(codes: list[int | str]) -> list[int | str]:
    """Return exit codes, each range with its lower end first."""
    return [code if isinstance(code, int) else "-".join(sorted(code.split("-"), key=int)) for code in codes]


def _fits(metadata: dict[str, Any]) -> dict[str, Any]:
    if metadata:
        user_json.write(metadata, user_json.MAX_METADATA)
    return metadata


def _keepable(value: Any) -> Any:
    if value is not None:
        user_json.write(value, user_json.MAX_RESULT)
    return value


def _is_a_program(argv: list[str]) -> list[str]:
    if not argv[0]:
        raise ValueError("the first item, the program, is empty")
    fits(argv)
    return argv


def _env_fits(env: dict[str, str]) -> dict[str, str]:
    if env:
        fits(env)
        fits(env.values())
    return env


class Unique(Body):
    """A key that only one job at a time holds."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"key": "report:2030-01", "on_conflict": "reject"}]})

    key: Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NAME_PATTERN)]
    until: Until = Until.FINISHED
    """Hold the key until the job has ended, or only until it starts."""
    on_conflict: OnConflict = OnConflict.RETURN
    """If another job holds the key: return that job, reject this one, or cancel that one if it is still waiting."""
    ttl: SomeSeconds | None = None
    """Seconds after which the key is released in any case; 24 hours by default."""

    def to_unique(self) -> models.Unique:
        ttl_ms = UNIQUE_MS if self.ttl is None else to_ms(self.ttl)
        return models.Unique(self.key, self.until, self.on_conflict, ttl_ms)


ListOfExitCodes = Annotated[list[ExitCode | ExitCodes], Field(max_length=50), AfterValidator(in_order)]
Tag = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=NAME_PATTERN)]
Tags = Annotated[list[Tag], Field(max_length=50)]
MetadataKey = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=NAME_PATTERN)]
Metadata = Annotated[
    dict[MetadataKey, Any],
    Field(max_length=100, json_schema_extra={"additionalProperties": False}),
    AfterValidator(_fits),
]
"""At most 16 KiB of JSON."""
_PROGRAM_FIRST: Final[dict[str, Any]] = {
    "prefixItems": [{"type": "string", "minLength": 1, "maxLength": MIB, "pattern": NO_NUL}]
}
Argv = Annotated[
    list[Text],
    Field(min_length=1, max_length=10_000, json_schema_extra=_PROGRAM_FIRST),
    AfterValidator(_is_a_program),
]
Env = Annotated[
    dict[EnvName, Text],
    Field(max_length=1000, json_schema_extra={"additionalProperties": False}),
    AfterValidator(_env_fits),
]
AnyResult = Annotated[Any, AfterValidator(_keepable)]
"""JSON of at most 64 KiB."""
Progress = Annotated[float, Field(allow_inf_nan=False)] | Annotated[str, StringConstraints(max_length=1000)]
