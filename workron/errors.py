"""Every error that Workron raises on purpose.

    WorkronError
    ├── InvalidRequest       the caller sent something that can never work
    │   ├── UnknownDependency    depends_on names a job that does not exist
    │   ├── DependencyCycle      a workflow's jobs wait for each other
    │   └── TooLarge             over one of the documented limits
    ├── Unauthorized         the API key is over since the request began
    ├── Forbidden            the API key lacks a scope or a queue
    ├── NotFound             no such job or workflow
    ├── Forgotten            what a repeated submission had stored has ended and is forgotten
    ├── Conflict             the state of the job, or its run, forbids it
    │   ├── IdempotencyConflict  the key was used before with another body
    │   ├── UniqueConflict       another job holds the unique key
    │   ├── NotRunning           a worker reports on a job that does not run
    │   └── LeaseLost            a worker reports on a job that another attempt runs by now
    ├── StoreUnavailable     Redis is away, loading or failing over; try again
    │   ├── ApiAway              a worker gets no answer from the API, or the API none from Redis
    │   │   └── ApiRefuses           the API answers a worker with an error
    │   │       ├── KeyRefused           it does not accept the worker's key, or the key lacks a right
    │   │       └── CallRefused          it does not accept this call: a report in it is too large, or not allowed
    │   ├── StoreFull            Redis has no room for new work
    │   ├── TooManyReads         all turns at reading are taken
    │   ├── GivenUp              a large submission was given up before it was whole
    │   ├── StoreRefused         Redis does not let us in, or does not run our commands
    │   └── StoreBroken          Redis answers with an error: a key of ours may be damaged
    ├── QueueFull            as many jobs wait as may; try again when some have gone
    ├── ApiUnreachable       a client got no answer from the API
    ├── ApiProblem           a client got an error as the API's answer
    ├── StoreUnsuitable      this Redis can't keep the promise (version, eviction policy)
    └── StartupError         a process can't start: one line, says what to do
        ├── NoRoom               the embedded server can't write its journal: the disk is full
        └── SettingsError        a setting is wrong or contradicts another

The API maps each to a status in `api/problems.py`, the CLI to an exit code in `workron/cli/exits.py`.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar


class WorkronError(Exception):
    """Base of all errors raised on purpose; `str()` is one line meant for the user."""


class InvalidRequest(WorkronError):
    """The request can never succeed as it is; `field` names what to change, where there is one."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class UnknownDependency(InvalidRequest):
    """`depends_on` names jobs that do not exist (or whose retention has passed)."""

    def __init__(self, job_ids: Sequence[str]) -> None:
        super().__init__(f"depends_on names a job that does not exist: {', '.join(job_ids)}", field="depends_on")
        self.job_ids = tuple(job_ids)


class DependencyCycle(InvalidRequest):
    """The jobs of a workflow wait for each other; `members` are names in order of the cycle."""

    def __init__(self, members: Sequence[str]) -> None:
        path = " → ".join([*members, members[0]])
        super().__init__(f"the workflow has a dependency cycle: {path}", field="jobs")
        self.members = tuple(members)


class TooLarge(InvalidRequest):
    """Over a documented limit: body size, jobs per submission, edges per job."""


class Unauthorized(WorkronError):
    """The API key that a request came with is good no longer."""

    def __init__(self) -> None:
        super().__init__("the API key was revoked or expired during this request")


class Forbidden(WorkronError):
    """The API key may not do this; `scopes` are those of which one is missing, or `queue` is the one it lacks."""

    def __init__(self, message: str, *, scopes: Sequence[str] = (), queue: str | None = None) -> None:
        super().__init__(message)
        self.scopes = tuple(scopes)
        self.queue = queue


class NotFound(WorkronError):
    """No such job, workflow or worker; it never existed, or its retention has passed."""

    def __init__(self, kind: str, ident: str) -> None:
        super().__init__(f"no such {kind}: {ident}")
        self.kind = kind
        self.ident = ident


class Forgotten(WorkronError):
    """The submission was accepted before, under this Idempotency-Key; its jobs have ended and are forgotten."""

    def __init__(self, ident: str) -> None:
        super().__init__(f"already accepted as {ident}, which has ended and was deleted: do not submit it again")
        self.ident = ident


class Conflict(WorkronError):
    """What was asked can't be done in the job's present state or run."""


class IdempotencyConflict(Conflict):
    """This Idempotency-Key was used before, with another request body."""


class UniqueConflict(Conflict):
    """Another job holds the unique key."""

    def __init__(self, job_id: str, key: str) -> None:
        super().__init__(f"job {job_id} holds the unique key {key}")
        self.job_id = job_id
        self.key = key


class NotRunning(Conflict):
    """A worker reports on a job that does not run."""


class LeaseLost(Conflict):
    """A worker reports on a job whose lease it has lost: another attempt runs by now, or may be meant."""


class StoreUnavailable(WorkronError):
    """Redis can't be reached or can't answer now; nothing is known about the call's effect."""

    is_outage: ClassVar[bool] = True
    """Whether Redis is away. Errors of the kinds below are answers: the server, or the API, is there."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


def is_outage(error: BaseException | None) -> bool:
    """Tell whether an error says that Redis is away, and nothing else."""
    return isinstance(error, StoreUnavailable) and error.is_outage


class ApiAway(StoreUnavailable):
    """The API can't be reached or can't answer now, to a worker that talks to nobody else."""

    is_outage = False


class ApiRefuses(ApiAway):
    """The API answered a worker with an error that is no outage."""


class KeyRefused(ApiRefuses):
    """The API does not accept the worker's key. It may later: the key can be renewed, so what runs goes on."""


class CallRefused(ApiRefuses):
    """The API does not accept a call as it is: a report in it, or all of it, is to blame."""


class StoreBroken(StoreUnavailable):
    """Redis answered with an error that trying again at once won't mend: a key of ours may be damaged."""

    is_outage = False


class StoreRefused(StoreUnavailable):
    """Redis does not let us in, or not do what we must: it has to be told otherwise first."""

    is_outage = False


class StoreFull(StoreUnavailable):
    """Redis has no room for new work; running work goes on and makes room."""

    is_outage = False


class TooManyReads(StoreUnavailable):
    """All turns at reading are taken, by pages and documents that are large or come slowly; Redis is not away."""

    is_outage = False

    def __init__(self) -> None:
        super().__init__("too many large reads at once; try again, or request less")


class GivenUp(StoreUnavailable):
    """A large submission took too long, or somebody else gave it up; nothing of it was stored."""

    is_outage = False


class QueueFull(WorkronError):
    """Over a limit of waiting jobs, that of a queue or (`queue` None) that of all; nothing was stored."""

    def __init__(
        self, queue: str | None, *, limit: int, waiting: int, size: int, rate: float | None, retry_after_s: float
    ) -> None:
        where = "the scheduler is" if queue is None else f"queue {queue} is"
        room = f"{where} full: {waiting:,} jobs wait, the limit is {limit:,}"
        super().__init__(f"{room}; {_prospect(limit, size, rate)}")
        self.queue = queue
        self.limit = limit
        self.waiting = waiting
        self.size = size
        """Jobs of the refused submission."""
        self.rate = rate
        """Jobs that end there in a second, None if it is not known."""
        self.retry_after_s = retry_after_s


def _prospect(limit: int, size: int, rate: float | None) -> str:
    if size > limit:
        return f"a submission of {size:,} can never fit"
    if rate is None:
        return "the drain rate is unknown"
    return f"{rate:.3g} end per second" if rate else "none has ended recently"


class ApiUnreachable(WorkronError):
    """No answer from the API; nothing is known about the request's effect."""


class ApiProblem(WorkronError):
    """The API's answer is an error: its HTTP status and the slug of its problem type, e.g. `not-found`.

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
    """This Redis server can't keep the promise: too old, or it evicts keys."""


class StartupError(WorkronError):
    """A process can't start; the message is one line and says what to do."""


class NoRoom(StartupError):
    """The embedded server can't write its journal: its disk is full, or a quota or limit is reached."""


class SettingsError(StartupError):
    """A setting is wrong, or contradicts another."""
