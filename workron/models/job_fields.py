"""The plain fields of a job. Each is declared once, here: its type, default, storage, checks and command-line option.

The class says how far a field goes. `Execution` is what a worker needs to run the job, `Described` what else a
submission sets, `Stored` what the scheduler records. The models of jobs and claims inherit the attributes. Encoding,
decoding, documents, OpenAPI models, options and filters follow from the tables at the end of this file. Fields of more
than one value (arrays, unique keys …) have code of their own.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal

from workron.names import NAME

DEFAULT_QUEUE: Final = "default"
DEFAULT_PRIORITY: Final = 5
DEFAULT_MAX_ATTEMPTS: Final = 3
PRIORITIES: Final = range(1, 10)
MIB: Final = 1024 * 1024
NAME_PATTERN: Final = r"^[^\x00-\x1f\x7f]*$"
NO_NUL: Final = r"^[^\x00]*$"
QUEUE_PATTERN: Final = f"^{NAME}$"


class Reason(StrEnum):
    """Why a job, or its last attempt, ended as it did."""

    EXIT_CODE = "exit_code"
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    WORKER_LOST = "worker_lost"
    UPSTREAM = "upstream"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    SPAWN = "spawn"


Kind = Literal["text", "whole", "duration", "time", "flag", "choice", "texts", "variables", "object", "json"]
"""How a value is stored and shown.

    whole     a whole number
    duration  milliseconds in attributes and storage (`timeout_ms`), seconds in documents (`timeout`)
    time      milliseconds since 1970 in attributes (`started_at_ms`) and storage (`started_at`), RFC 3339 in documents
    flag      stored as 1, or not at all
    choice    a member of the enum `members`
    texts, variables, object, json
              JSON: a list of texts, texts by name, any object, anything. If a submission may set such a field,
              `workron/specs/plain.py` has its checks
"""


@dataclass(frozen=True, slots=True)
class Option:
    """The option of `submit`, `run` and `schedules put` that sets a field; `flag` if it is not the field's name."""

    metavar: str
    help: str
    flag: str | None = None


@dataclass(frozen=True, slots=True)
class JobField:
    """A plain field: `name` as an attribute, `stored` in the job's hash, `shown` in documents.

    `least` and `most` are the bounds of a number, or of the length of a text.
    """

    name: str
    stored: str
    shown: str
    kind: Kind
    default: Any
    members: type[StrEnum] | None
    least: int | None
    most: int | None
    pattern: str | None
    description: str | None
    option: Option | None
    filterable: bool


def _plain(
    kind: Kind,
    default: Any = None,
    *,
    members: type[StrEnum] | None = None,
    least: int | None = None,
    most: int | None = None,
    pattern: str | None = None,
    description: str | None = None,
    option: Option | None = None,
    filterable: bool = False,
) -> Any:
    """Declare a field. `default` may be the type of an empty one; `filterable`: lists of jobs can be filtered by it."""
    about = (members, least, most, pattern, description, option, filterable)
    given: dict[str, Any] = {"default_factory" if isinstance(default, type) else "default": default}
    return dataclasses.field(**given, metadata={"kind": kind, "about": about})


@dataclass(slots=True, kw_only=True, init=False, eq=False, repr=False)
class Execution:
    """What a worker needs in order to run a job."""

    command: str | None = _plain(
        "text",
        least=1,
        most=MIB,
        pattern=NO_NUL,
        description="Shell command, run by `sh -c`. Exactly one of `command` and `argv` is given.",
    )
    argv: Sequence[str] | None = _plain("texts", description="Program and arguments, run without a shell.")
    timeout_ms: int | None = _plain(
        "duration",
        description="Maximum duration of an attempt, which is then stopped and fails: seconds, or `30s`, `5m`, `7d`.",
        option=Option("TIME", "stop an attempt after this time: 30s, 5m, 2h"),
    )
    env: Mapping[str, str] = _plain(
        "variables", dict, description="Environment variables, in addition to the few that a worker passes on."
    )
    cwd: str | None = _plain(
        "text", least=1, most=4096, pattern=NO_NUL, description="Working directory, on the worker."
    )


@dataclass(slots=True, kw_only=True, init=False, eq=False, repr=False)
class Described(Execution):
    """What else a submission sets."""

    name: str | None = _plain(
        "text",
        least=1,
        most=200,
        pattern=NAME_PATTERN,
        description="Name of the job; it must be unique within a workflow only.",
        option=Option("TEXT", "name of the job, for `ls --name`"),
        filterable=True,
    )
    tags: Sequence[str] = _plain(
        "texts",
        (),
        description="Labels to find the job by; jobs can share them.",
        option=Option("TEXT", "label, for `ls --tag`. May be repeated", flag="--tag"),
    )
    metadata: Mapping[str, Any] = _plain(
        "object",
        dict,
        description="Additional data, at most 16 KiB of JSON: stored and searchable, not interpreted.",
    )
    queue: str = _plain(
        "text", DEFAULT_QUEUE, pattern=QUEUE_PATTERN, option=Option("NAME", "queue of the job (default: `default`)")
    )
    priority: int = _plain(
        "whole",
        DEFAULT_PRIORITY,
        least=PRIORITIES[0],
        most=PRIORITIES[-1],
        description="1 to 9; 9 starts first.",
        option=Option("1-9", "priority from 1 to 9, highest first (default: 5)"),
    )
    max_attempts: int = _plain(
        "whole", DEFAULT_MAX_ATTEMPTS, least=1, most=100, option=Option("N", "maximum number of attempts")
    )


@dataclass(slots=True, kw_only=True, init=False, eq=False, repr=False)
class Stored(Described):
    """What the scheduler records."""

    run: int = _plain("whole", 1, description="1, and one more with each retry by an operator.")
    reason: Reason | None = _plain(
        "choice", members=Reason, description="Why the job, or its last attempt, ended as it did."
    )
    result: Any = _plain("json", description="JSON result of the last attempt's command.")
    attempts: int = _plain("whole", 0, description="Attempts started in this run.")
    run_at_ms: int | None = _plain("time")
    started_at_ms: int | None = _plain("time")
    finished_at_ms: int | None = _plain("time")
    cancel_requested_at_ms: int | None = _plain("time")
    worker: str | None = _plain("text")
    exit_code: int | None = _plain("whole", description="Null when a signal ended the command.")
    signal: int | None = _plain("whole")
    error: str | None = _plain("text", description="Error message, with the end of the output.")
    workflow: str | None = _plain("text")
    final: bool = _plain("flag", False, description="Whether it starts when all other jobs of its workflow have ended.")


def _fields(shape: type) -> tuple[JobField, ...]:
    return tuple(map(_field, dataclasses.fields(shape)))


def _field(declared: "dataclasses.Field[Any]") -> JobField:
    name, kind, factory = declared.name, declared.metadata["kind"], declared.default_factory
    default = declared.default if factory is dataclasses.MISSING else factory()
    shown = name.removesuffix("_ms")
    return JobField(name, shown if kind == "time" else name, shown, kind, default, *declared.metadata["about"])


EXECUTION: Final = _fields(Execution)
"""The fields that are part of a claim."""
DESCRIBED: Final = _fields(Described)
"""The fields that a submission may set, those of `EXECUTION` first."""
STORED: Final = _fields(Stored)
"""All, those of `DESCRIBED` first."""
FILTERABLE: Final = tuple(field for field in STORED if field.filterable)
