"""What the model keeps: jobs, queues, workflows and keys as plain objects. Times are ms, None is "not there"."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.model.rates import Starts
from workron.models import NewJob, OnFailure, Rate, Status

ENDED: Final = ("done", "failed", "cancelled", "skipped")
WAITING: Final = ("pending", "scheduled", "blocked")
GONE: Final = ("cancelled", "failed")
"""Perhaps while they waited: then they still have edges, by which a retry goes."""


@dataclass
class Policy:
    """The settings that the rules need."""

    lease_ms: int
    stop_ms: int
    pass_ms: int
    retry_ms: int
    retry_max_ms: int


@dataclass
class Job:
    """A job: what was submitted, and what has become of it. Fields without a comment are shown as they are."""

    new: NewJob
    created_at: int
    queue: str
    priority: int
    workflow: str | None = None
    status: str = "new"
    run: int = 1
    attempts: int = 0
    reason: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    error: str | None = None
    result: Any = None
    caused_by: str | None = None
    run_at: int | None = None
    deadline_at: int | None = None
    expires_at: int | None = None
    started_at: int | None = None
    finished_at: int | None = None
    cancel_requested_at: int | None = None
    expired_at: int | None = None
    """When its deadline had it stopped while it ran."""
    worker: str | None = None
    beat_at: int | None = None
    fence: int | None = None
    """Of the attempt that runs, or whose result ended the job."""
    earlier: tuple[int, str] | None = None
    """Fence of an earlier attempt whose result was accepted, and what that made of the job: its repeat is told so."""
    lease_until: float = 0
    """When the reaper looks at it."""
    alive_until: int = 0
    """When its worker counts as silent."""
    releases: int = 0
    losses: int = 0
    """How often its worker was lost."""
    open: dict[str, str] = field(default_factory=dict)
    """Edges that are not satisfied: parent → `when`, with `!` in front when the parent has ended otherwise."""
    children: list[tuple[str, str]] = field(default_factory=list)
    """(`when`, child), as long as the job is stored."""
    to_visit: bool = False
    """Its children are to be told how it stands."""
    cascade: int = 0
    """Number of the cancel that went on from it to its dependents."""
    cascading: bool = False
    task: tuple[str, int] | None = None
    """Which task of which array it is."""
    place: int = 0
    """Its place in the line of its concurrency key."""

    @property
    def id(self) -> str:
        return self.new.id

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def broken(self) -> list[str]:
        return [parent for parent, state in self.open.items() if state.startswith("!")]

    @property
    def max_attempts(self) -> int:
        return self.new.max_attempts

    @property
    def is_suspect(self) -> bool:
        """Whether it may be what kills its workers: then nothing is claimed with it."""
        return self.losses > 1 or (self.losses == 1 and self.attempts + 1 >= self.max_attempts)

    @property
    def walked(self) -> bool:
        return self.to_visit or self.cascading

    def timeout_at(self) -> int | None:
        return self.started_at + self.new.timeout_ms if self.started_at and self.new.timeout_ms else None


@dataclass
class Queue:
    """Lists of waiting ids by priority, and what was set."""

    lists: dict[int, list[str]] = field(default_factory=lambda: {priority: [] for priority in range(9, 0, -1)})
    paused: bool = False
    max_running: int | None = None
    max_pending: int | None = None
    rate: Rate | None = None
    starts: Starts = field(default_factory=Starts)

    @property
    def is_set(self) -> bool:
        return self.paused or any(limit is not None for limit in (self.max_running, self.max_pending, self.rate))

    @property
    def is_gated(self) -> bool:
        return self.paused or self.max_running is not None or self.rate is not None


@dataclass
class Workflow:
    """A workflow; `gone` counts its jobs that were deleted."""

    id: str
    created_at: int
    jobs: list[str]
    on_failure: OnFailure
    has_hands: bool
    """Whether its jobs tell it what becomes of them: it stops by itself, or has a final job."""
    final: str | None = None
    stopped: tuple[str, str] | None = None
    stop_at: int | None = None
    """How far the stop has come, while it is under way."""
    gone: Counter[str] = field(default_factory=Counter)


@dataclass
class Slots:
    """A concurrency key, as long as it has jobs that have not ended."""

    limit: int = 0
    since: int = 0
    last: int = 0
    first: int = 0
    """The places given last, at the end and in front."""


class Refused(Exception):
    """The scheduler says no; the name is that of its error."""

    def __init__(self, error: str, *about: Any) -> None:
        super().__init__(error, *about)
        self.error = error


def must_stop(job: Job, stop_ms: int) -> tuple[str, int] | None:
    """Why a running command has to stop, and by when it has to be gone: what comes first counts."""
    since = {"timeout": job.timeout_at(), "cancelled": job.cancel_requested_at, "expired": job.expired_at}
    known = [(at, why) for why, at in since.items() if at is not None]
    if not known:
        return None
    at, why = min(known, key=lambda one: one[0])
    return why, at + stop_ms


def counted(jobs: Sequence[Job]) -> Counter[str]:
    return Counter(job.status for job in jobs)


def shown(counts: Counter[str]) -> dict[str, int]:
    return {status.value: counts[status.value] for status in Status if counts[status.value]}


def differing(what: str, actual: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[str]:
    for name in expected:
        if actual[name] != expected[name]:
            yield f"{what}: {name} is {actual[name]!r}, in the model {expected[name]!r}"
