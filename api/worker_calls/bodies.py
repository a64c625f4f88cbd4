"""Request bodies of workers: strict models, and their conversion to the store's types."""

import base64
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, field_validator

from workron.durations import to_ms
from workron.errors import InvalidRequest, TooLarge
from workron.models import (
    DEFAULT_QUEUE,
    OUTPUT_HEAD,
    OUTPUT_TAIL,
    Outcome,
    OutputPatch,
    Reason,
    Result,
    Unfenced,
    WorkerInfo,
    user_json,
)
from workron.models.exchange import MAX_BEATS, MAX_RESULTS
from workron.models.text import first_line, harmless, last_bytes
from workron.specs.documented import Documented
from workron.specs.fields import (
    ID_PATTERN,
    RFC3339,
    Body,
    QueueName,
    Seconds,
    epoch_ms,
    or_with_a_point,
)
from workron.specs.job_fields import AnyResult, Progress

STORED: Final = OUTPUT_HEAD + OUTPUT_TAIL
"""Bytes kept of one attempt's output."""
LONGEST_WAIT_S: Final = 60
_ANY: Final = r"[\x21-\x2e\x30-\x7e]"
_NAME: Final = r"^[\x21-\x7e]{1,100}$"
_SEGMENT: Final = rf"^([\x21-\x2d\x30-\x7e]{_ANY}{{0,99}}|\.[\x21-\x2d\x30-\x7e]{_ANY}{{0,98}}|\.\.{_ANY}{{1,98}})$"
"""A segment of a path: no slash, and neither `.` nor `..`."""
_BASE64: Final = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_ERROR_BYTES: Final = 4096


def _is_no_key(worker: str) -> str:
    if is_key(worker):
        raise ValueError("must not contain :claim")
    return worker


def is_key(worker: str) -> bool:
    """Return whether this worker name would collide with another key in Redis."""
    return ":claim" in worker


WorkerId = Annotated[str, StringConstraints(pattern=_SEGMENT), AfterValidator(_is_no_key)]
"""No spaces: in Redis, names are separated by spaces."""
RequestId = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7d]{1,100}$")]
"""No tilde: it marks the non-waiting requests of Workron's own worker."""
JobId = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
Fence = Annotated[int, Field(ge=1, le=2**53), or_with_a_point]
Queues = Annotated[list[QueueName], Field(min_length=1, max_length=100)]
QueryFence = Annotated[int, Field(ge=1, le=2**53)]
QueryOffset = Annotated[int, Field(ge=0, le=STORED)]
QueryCount = Annotated[int, Field(ge=0, le=2**53)]
_Count = Annotated[int, Field(ge=0, le=2**53), or_with_a_point]
_Small = Annotated[int, Field(ge=-(2**31), le=2**31 - 1), or_with_a_point]
_Short = Annotated[str, StringConstraints(max_length=1000)]
FailureReason = Literal["exit_code", "signal", "timeout", "worker_lost", "cancelled", "spawn"]


class NewClaims(Body):
    """Ask for jobs."""

    worker_id: WorkerId
    queues: Queues = Field(default_factory=lambda: [DEFAULT_QUEUE])
    """In order of priority."""
    limit: Annotated[int, Field(ge=1, le=MAX_RESULTS), or_with_a_point] = 1
    wait: Annotated[float, Field(ge=0, le=LONGEST_WAIT_S, allow_inf_nan=False)] | None = None
    """Seconds to wait for a job; by default the header `Prefer: wait=`, otherwise 0."""
    request_id: RequestId | None = None
    """Unique id of the request. Without a response, repeat the request with the same id: it returns the same claims,
    leased again."""
    begins: bool = False
    """The worker reports when the command of a job with `"alone": true` in `more` starts: by a heartbeat for the job
    with `"begins": true`. If the worker is lost before, this does not count against the job."""


class Held(Body):
    """A claim that the worker holds."""

    id: JobId
    fence: Fence


class OutputPiece(Body):
    """A chunk of output, as `text` or as `base64`."""

    offset: Annotated[int, Field(ge=0, le=STORED), or_with_a_point] = 0
    """Offset in the stored output, which has the first 128 KiB followed by the last 128 KiB."""
    total: _Count | None = None
    """Total of bytes written so far; by default the end of this chunk."""
    text: Annotated[str, StringConstraints(max_length=STORED)] | None = None
    base64: Annotated[str, StringConstraints(max_length=2 * STORED, pattern=_BASE64)] | None = None

    def to_patch(self) -> OutputPatch:
        """Return the store's form; raise TooLarge if it exceeds the stored range."""
        data = (self.text or "").encode() if self.base64 is None else base64.b64decode(self.base64)
        return output_patch(self.offset, data, self.total)


def said(progress: float | str | None) -> str | None:
    """Return the progress as stored: one line of text."""
    text = progress if isinstance(progress, str) or progress is None else f"{progress:.12g}"
    return None if text is None else first_line(text)


def output_patch(offset: int, data: bytes, total: int | None) -> OutputPatch:
    """Return a patch; raise TooLarge if it exceeds the stored range."""
    if offset + len(data) > STORED:
        raise TooLarge(f"this output ends after byte {STORED:,}, the most that is stored")
    return OutputPatch(offset, data, max(offset + len(data), total or 0))


class Report(Body):
    """The result of an attempt. All fields are optional."""

    fence: Fence | None = None
    """The claim's fence; without it the report is accepted only if it is unambiguous (setting `unfenced`)."""
    exit_code: _Small | None = None
    error: Annotated[str, StringConstraints(max_length=65_536)] | None = None
    """Error message; its last 4 KiB are stored."""
    output: OutputPiece | None = None
    """The last chunk of the output, or all of it."""
    result: AnyResult = None
    """JSON of at most 64 KiB, shown with the job and passed to the jobs that depend on it."""
    progress: Progress | None = None
    """The final progress."""

    def success(self) -> Outcome:
        """Return the outcome of a success, with `error` as a remark."""
        code, error = self.exit_code or 0, _harmless(self.error)
        return Outcome(None, code, error=error, result=self._result(), progress=said(self.progress))

    def _result(self) -> str | None:
        return None if self.result is None else user_json.write(self.result, user_json.MAX_RESULT).decode()


class FailureReport(Report):
    """The failure of an attempt. All fields are optional."""

    reason: FailureReason | None = None
    """`signal` by default if there is one, else `exit_code`."""
    signal: Annotated[int, Field(ge=1, le=128), or_with_a_point] | None = None
    retry_after: Annotated[Seconds, Field(ge=0)] | None = None
    """Seconds before the next attempt, if there is one; overrides the delay of the job's retry policy."""

    def failure(self) -> Outcome:
        by_default = Reason.EXIT_CODE if self.signal is None else Reason.SIGNAL
        reason = by_default if self.reason is None else Reason(self.reason)
        after_ms = to_ms(self.retry_after)
        return Outcome(
            reason, self.exit_code, self.signal, _harmless(self.error), after_ms, self._result(), said(self.progress)
        )


class JobResult(FailureReport):
    """The result of one of many attempts; without a `reason` it succeeded."""

    id: JobId
    fence: Fence

    def to_result(self) -> Result:
        outcome = self.success() if self.reason is None else self.failure()
        return Result(self.id, self.fence, outcome, self.output.to_patch() if self.output else None)


def _harmless(error: str | None) -> str | None:
    return None if error is None else last_bytes(harmless(error), _ERROR_BYTES)


class MaybeFenced(Body):
    """The claim that a report concerns."""

    fence: Fence | None = None


class JobBeat(MaybeFenced):
    """The claim that a heartbeat concerns, and its progress."""

    progress: Progress | None = None
    """A number or a string, shown with the job."""
    begins: bool = False
    """The command starts now (see `begins` in `POST /claims`)."""


class ClaimPart(Body):
    """Ask for jobs in the same call."""

    request_id: Annotated[str, StringConstraints(pattern=_NAME)]
    queues: Queues
    limit: Annotated[int, Field(ge=0, le=MAX_RESULTS), or_with_a_point]
    """0 only returns the claims this request already has."""
    begins: bool = False
    """As in `POST /claims`."""


class NewExchange(Body):
    """Results, released claims, and a request for more claims, in one call."""

    worker_id: WorkerId
    results: Annotated[list[JobResult], Field(max_length=MAX_RESULTS)] = Field(default_factory=list)
    released: Annotated[list[Held], Field(max_length=MAX_RESULTS)] = Field(default_factory=list)
    claim: ClaimPart | None = None


class NewOutput(Held):
    """Output of one of many attempts, its progress, or both."""

    output: OutputPiece | None = None
    progress: Progress | None = None

    def to_patch(self) -> OutputPatch:
        patch = OutputPatch(0, b"", 0) if self.output is None else self.output.to_patch()
        progress = said(self.progress)
        return replace(patch, progress="" if progress is None and self.output is None else progress)


class NewOutputs(Body):
    """Output of many attempts."""

    data: Annotated[list[NewOutput], Field(max_length=MAX_RESULTS)]


class AboutWorker(Body):
    """A worker's description of itself."""

    id: WorkerId
    host: _Short = ""
    pid: _Count = 0
    queues: Queues = Field(default_factory=lambda: [DEFAULT_QUEUE])
    slots: _Count = 1
    running: _Count = 0
    jobs: Annotated[list[JobId], Field(max_length=100)] = Field(default_factory=list)
    """Its running attempts, oldest first."""
    draining: bool = False
    """It claims no more jobs and stops after its last one."""
    started_at: (
        Annotated[str, StringConstraints(pattern=RFC3339), Field(json_schema_extra={"format": "date-time"})] | None
    ) = None
    version: _Short = ""

    @field_validator("started_at")
    @classmethod
    def _started_at_is_a_time(cls, started_at: str | None) -> str | None:
        if started_at is not None:
            epoch_ms(started_at)
        return started_at

    def to_info(self, now_ms: int) -> WorkerInfo:
        return WorkerInfo(
            id=self.id,
            host=self.host,
            pid=self.pid,
            queues=tuple(self.queues),
            slots=self.slots,
            running=self.running,
            started_at_ms=now_ms if self.started_at is None else epoch_ms(self.started_at),
            version=self.version,
            jobs=tuple(self.jobs),
            draining=self.draining,
        )


class NewHeartbeats(Body):
    """The heartbeat of a worker and its attempts."""

    worker: AboutWorker
    held: Annotated[list[Held], Field(max_length=MAX_BEATS * 20)] = Field(default_factory=list)


class Resources(Documented):
    """Resources of the worker's machine."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    vram_mb: _Count | None = None
    memory_mb: _Count | None = None


class NewWorker(Documented):
    """The registration of a worker. Unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    id: WorkerId
    exec_addr: _Short | None = None
    """Its address; only shown."""
    resources: Resources | None = None
    tags: Annotated[list[_Short], Field(max_length=100)] | None = None

    def to_info(self, now_ms: int) -> WorkerInfo:
        given: dict[str, Any] = self.resources.model_dump(exclude_none=True) if self.resources else {}
        return WorkerInfo(
            id=self.id,
            host=(self.exec_addr or "").rpartition(":")[0] or self.exec_addr or "",
            pid=0,
            queues=(DEFAULT_QUEUE,),
            slots=1,
            running=0,
            started_at_ms=now_ms,
            version="",
            exec_addr=self.exec_addr,
            resources={name: value for name, value in given.items() if name in Resources.model_fields},
            tags=tuple(self.tags or ()),
        )


def fence_of(fence: int | None, unfenced: Literal["never", "safe", "always"]) -> int | Unfenced:
    """Return the fence of a report or the policy for reports without one; raise InvalidRequest if it is required."""
    if fence is not None:
        return fence
    if unfenced == "never":
        raise InvalidRequest("send the fence of the claim: reports without a fence are not accepted", field="fence")
    return unfenced
