"""Every error that Workron raises on purpose.

    WorkronError
    ├── InvalidRequest       the caller sent something that can never work
    │   ├── UnknownDependency    depends_on names a job that does not exist
    │   ├── DependencyCycle      a workflow has a dependency cycle
    │   └── TooLarge             over one of the documented limits
    ├── Unauthorized         the API key was revoked or expired since the request began
    ├── Forbidden            the API key lacks a scope or a queue
    ├── NotFound             no such job or workflow
    ├── Forgotten            the jobs of a repeated submission have ended and were deleted
    ├── Conflict             conflict with the state of the job, or its run
    │   ├── IdempotencyConflict  the key was used before with a different body
    │   ├── UniqueConflict       another job holds the unique key
    │   ├── NotRunning           a worker reports on a job that is not running
    │   └── LeaseLost            a worker reports on a job that another attempt is running
    ├── StoreUnavailable     Redis is unavailable, loading or failing over; try again
    │   ├── ApiAway              a worker gets no response from the API, or the API none from Redis
    │   │   └── ApiRefuses           the API answers a worker with an error
    │   │       ├── KeyRefused           it rejects the worker's key, or the key lacks a right
    │   │       └── CallRefused          it rejects this call: a report in it is too large, or not allowed
    │   ├── StoreFull            Redis has no room for new work
    │   ├── TooManyReads         too many concurrent large reads
    │   ├── GivenUp              a large submission was aborted before it was complete
    │   ├── StoreRefused         Redis rejects the login, or our commands
    │   └── StoreBroken          Redis returns an error: one of our keys may be damaged
    ├── QueueFull            a limit of waiting jobs is reached; try again later
    ├── ApiUnreachable       a client got no response from the API
    ├── ApiProblem           a client got an error response from the API
    ├── StoreUnsuitable      this Redis can't give the guarantees (version, eviction policy)
    └── StartupError         a process can't start: one line with the remedy
        ├── NoRoom               the embedded server can't write its journal: the disk is full
        └── SettingsError        a setting is wrong or contradicts another

The API maps each to a status in `api/problems.py`, the CLI to an exit code in `workron/cli/exits.py`.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from workron.amounts import MOST_NAMED, counted, some


class WorkronError(Exception):
    """Base of all errors raised on purpose; `str()` is one line for the user."""


class InvalidRequest(WorkronError):
    """The request can never succeed unchanged; `field` is the field to change, if known."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class UnknownDependency(InvalidRequest):
    """`depends_on` names jobs that don't exist, or were deleted after their retention."""

    def __init__(self, job_ids: Sequence[str]) -> None:
        super().__init__(f"depends_on names a job that does not exist: {some(job_ids)}", field="depends_on")
        self.job_ids = tuple(job_ids)


class DependencyCycle(InvalidRequest):
    """The jobs of a workflow depend on each other; `members` are names in order of the cycle."""

    def __init__(self, members: Sequence[str]) -> None:
        rest = len(members) - MOST_NAMED
        path = " → ".join([*members[:MOST_NAMED], *([f"({rest:,} more)"] if rest > 0 else []), members[0]])
        super().__init__(f"the workflow has a dependency cycle: {path}", field="jobs")
        self.members = tuple(members)


class TooLarge(InvalidRequest):
    """Over a documented limit: body size, jobs per submission, edges per job."""


class Unauthorized(WorkronError):
    """The request's API key is no longer valid."""

    def __init__(self) -> None:
        super().__init__("the API key was revoked or expired during this request")


class Forbidden(WorkronError):
    """The API key may not do this; `scopes` are those of which one is required, or `queue` the one without access."""

    def __init__(self, message: str, *, scopes: Sequence[str] = (), queue: str | None = None) -> None:
        super().__init__(message)
        self.scopes = tuple(scopes)
        self.queue = queue


class NotFound(WorkronError):
    """No such job, workflow or worker; it never existed, or was deleted after its retention."""

    def __init__(self, kind: str, ident: str) -> None:
        super().__init__(f"no such {kind}: {ident}")
        self.kind = kind
        self.ident = ident


class Forgotten(WorkronError):
    """The submission was already accepted with this Idempotency-Key; its jobs have ended and were deleted."""

    def __init__(self, ident: str) -> None:
        super().__init__(f"already accepted as {ident}, which has ended and was deleted: do not submit it again")
        self.ident = ident


class Conflict(WorkronError):
    """The operation is not possible in the job's current state or run."""


class IdempotencyConflict(Conflict):
    """This Idempotency-Key was used before with a different request body."""


class UniqueConflict(Conflict):
    """Another job holds the unique key."""

    def __init__(self, job_id: str, key: str) -> None:
        super().__init__(f"job {job_id} holds the unique key {key}")
        self.job_id = job_id
        self.key = key


class NotRunning(Conflict):
    """A worker reports on a job that is not running."""


class LeaseLost(Conflict):
    """A worker reports on a job whose lease it has lost: the report may concern another attempt."""


class StoreUnavailable(WorkronError):
    """Redis can't be reached or can't answer at present; the effect of the call is unknown."""

    is_outage: ClassVar[bool] = True
    """Whether Redis, or the API before it, is unavailable. Subclasses with False are responses of either."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


def is_outage(error: BaseException | None) -> bool:
    """Return whether an error means that Redis, or the API before it, is unavailable."""
    return isinstance(error, StoreUnavailable) and error.is_outage


class ApiAway(StoreUnavailable):
    """The API can't be reached or can't answer at present, for a worker over HTTP."""


class ApiRefuses(ApiAway):
    """The API answered a worker with an error that is not an outage."""

    is_outage = False


class KeyRefused(ApiRefuses):
    """The API rejects the worker's key. Running jobs continue, as the key can be renewed."""


class CallRefused(ApiRefuses):
    """The API rejects a call because of a report in it, or as a whole."""


class StoreBroken(StoreUnavailable):
    """Redis returned an error that an immediate retry won't fix: one of our keys may be damaged."""

    is_outage = False


class StoreRefused(StoreUnavailable):
    """Redis rejects the login or required commands: its configuration must be changed."""

    is_outage = False


class StoreFull(StoreUnavailable):
    """Redis has no room for new work; running work continues and frees memory."""

    is_outage = False


class TooManyReads(StoreUnavailable):
    """Too many concurrent reads of large pages and documents; Redis is not unavailable."""

    is_outage = False

    def __init__(self) -> None:
        super().__init__("too many large reads at once; try again, or request less")


class GivenUp(StoreUnavailable):
    """A large submission timed out or was aborted by another process; nothing was stored."""

    is_outage = False


class QueueFull(WorkronError):
    """A limit of waiting jobs is exceeded, of a queue or (`queue` None) of all queues; nothing was stored."""

    def __init__(
        self, queue: str | None, *, limit: int, waiting: int, size: int, rate: float | None, retry_after_s: float
    ) -> None:
        where = "the scheduler is" if queue is None else f"queue {queue} is"
        room = f"{where} full: {counted(waiting, 'job waits', 'jobs wait')}, the limit is {limit:,}"
        super().__init__(f"{room}; {_prospect(limit, size, rate)}")
        self.queue = queue
        self.limit = limit
        self.waiting = waiting
        self.size = size
        """Number of jobs of the rejected submission."""
        self.rate = rate
        """Drain rate, jobs per second; None if unknown."""
        self.retry_after_s = retry_after_s


def _prospect(limit: int, size: int, rate: float | None) -> str:
    if size > limit:
        return f"a submission of {size:,} can never fit"
    if rate is None:
        return "the drain rate is unknown"
    return f"{rate:.3g} end per second" if rate else "none has ended recently"


class ApiUnreachable(WorkronError):
    """No response from the API; the effect of the request is unknown."""


class ApiProblem(WorkronError):
    """An error response of the API, with its HTTP status and the slug of its problem type, e.g. `not-found`.

    `members` are all members of the problem document.
    """

    def __init__(
        self, message: str, *, status: int, slug: str, members: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        super().__init__(message)
        self.status = status
        self.slug = slug
        self.members = members


class StoreUnsuitable(WorkronError):
    """This Redis server can't give the guarantees: it is too old, or evicts keys."""


class StartupError(WorkronError):
    """A process can't start; the message is one line with the remedy."""


class NoRoom(StartupError):
    """The embedded server can't write its journal: its disk is full, or a quota or limit is reached."""


class SettingsError(StartupError):
    """A setting is wrong, or contradicts another."""
