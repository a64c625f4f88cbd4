"""The store: every operation on jobs, in domain types. The front of all that speaks Redis.

    Store            submit, cancel, retry; read jobs, wait for them     what the API calls
    Store.attempts   claim, heartbeat, finish, release, drain, leave …   what workers call
    Store.schedules  put, read, list, delete schedules               what the API and the reaper call
    Store.upkeep     reap, promote, propagate, tidy, sweep               what the reaper calls

One verb per transition, the same in `lua/`, in `scripts.py` and here. Any call may raise StoreUnavailable; each is safe
to repeat then, because it is idempotent by id, request id or fence; `cancel` and `retry` are if they name the run.
"""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Self

from workron import ids
from workron.arrays import Arrays
from workron.attempts import Attempts
from workron.connection import Connection
from workron.errors import Conflict, InvalidRequest, NotFound, StoreRefused, StoreUnavailable, StoreUnsuitable
from workron.feed import RECHECK_S, Feed
from workron.fleet import WorkerPage, WorkerState
from workron.keys import Keys
from workron.listing import JobFilter, Listing
from workron.models import (
    Cancelled,
    Idempotency,
    Job,
    JobPage,
    NewJob,
    Output,
    QueueState,
    Submitted,
    Workflow,
)
from workron.policy import Policy
from workron.reading import Reader
from workron.schedules.book import ScheduleBook
from workron.scripts import Scripts
from workron.serverinfo import ServerInfo, check, server_info
from workron.settings import Settings
from workron.signals import happens
from workron.submission import Submitter
from workron.upkeep import Upkeep

SCHEMA: Final = 1
"""Version of what is stored in Redis."""


@dataclass(frozen=True, slots=True)
class Health:
    """The state of the whole system, as far as Redis knows it."""

    server: ServerInfo
    last_pass_age_ms: int | None
    running: int
    due: int


class Store:
    """All operations of one namespace on one Redis."""

    def __init__(
        self, connection: Connection, *, namespace: str = "default", policy: Policy | None = None, shebang: bool = True
    ) -> None:
        self.policy: Final = policy or Policy()
        self._connection = connection
        self._keys = Keys(namespace)
        self._scripts = Scripts(connection, self._keys, shebang=shebang)
        self._reader = Reader(connection, self._keys)
        self._arrays = Arrays(self._scripts)
        self._submitter = Submitter(self._scripts, self._reader.missing, self._arrays)
        self._listing = Listing(connection, self._keys, self._reader)
        self._feed = Feed(connection, self._keys)
        self.schedules: Final = ScheduleBook(connection, self._keys, self._scripts)
        self.attempts: Final = Attempts(connection, self._keys, self._scripts, self.policy)
        self.upkeep: Final = Upkeep(
            connection, self._keys, self._scripts, self._reader, self._submitter, self._arrays, self.policy
        )

    @classmethod
    def connect(cls, settings: Settings) -> Self:
        """Build the store of `settings.redis`; nothing is sent yet."""
        if settings.redis is None:
            raise StoreRefused("no Redis is configured: give --redis URL, or start everything with `workron up`")
        connection = Connection.open(settings.redis.get_secret_value())
        return cls(connection, namespace=settings.namespace, policy=Policy.of(settings))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._feed.aclose()
        await self._connection.aclose()

    # --- about the server ---------------------------------------------------------------------------------------------

    async def ping(self) -> None:
        await self._connection.call("PING")

    async def check(self, *, allow_eviction: bool = False) -> ServerInfo:
        """Return what the server says of itself; StoreUnsuitable if jobs would not be safe there.

        The first one to come marks the namespace with the version of its keys.
        """
        info = await server_info(self._connection)
        check(info, allow_eviction=allow_eviction)
        schema = await self._connection.call("HGET", self._keys.meta, "schema")
        if schema is None:  # a full server would refuse this write, and has to be drained by those who start now
            await self._connection.call("HSETNX", self._keys.meta, "schema", SCHEMA)
        elif int(schema) != SCHEMA:
            raise StoreUnsuitable(
                f"the keys in Redis are of version {int(schema)}, this Workron knows version {SCHEMA}"
            )
        return info

    async def health(self) -> Health:
        server = await server_info(self._connection)
        last_pass, now, running, due = await self._connection.pipeline(
            [
                ("HGET", self._keys.meta, "last_pass"),
                ("TIME",),
                ("ZCARD", self._keys.leases),
                ("ZCARD", self._keys.due),
            ]
        )
        now_ms = int(now[0]) * 1000 + int(now[1]) // 1000
        age_ms = None if last_pass is None else now_ms - int(last_pass)
        return Health(server, age_ms, running, due)

    # --- limits -------------------------------------------------------------------------------------------------------

    async def limit_queue(self, queue: str, max_pending: int | None) -> QueueState:
        """Set how many jobs may wait in a queue; None: it has no limit of its own. Returns the queue as it is then."""
        await self._limit("queue", queue, max_pending)
        return (await self._reader.queues_named([queue]))[0]

    async def limit_all(self, settings: Settings) -> None:
        """Put the limits that the settings name into Redis, where all submitters find them; others stay as they are."""
        for scope, most in (("queues", settings.max_pending), ("total", settings.max_pending_total)):
            if most is not None:
                await self._limit(scope, "", None if most == "none" else most)

    async def _limit(self, scope: str, queue: str, most: int | None) -> None:
        await self._scripts.limit(scope, queue, "" if most is None else most)

    # --- submitting ---------------------------------------------------------------------------------------------------

    async def submit(
        self,
        jobs: Sequence[NewJob],
        *,
        workflow: str | None = None,
        as_workflow: bool = False,
        idempotency: Idempotency | None = None,
    ) -> Submitted:
        """Store jobs, all or none; `workflow` is a name. Ids are consecutive, parents stand before their children."""
        await self._arrays.check(jobs, self._reader.jobs)
        # The id behind the last job's: the same again if the submission is repeated.
        workflow_id = ids.ids_from(jobs[-1].id, 2)[1] if as_workflow or workflow is not None else ""
        return await self._submitter.submit(jobs, workflow=workflow_id, name=workflow or "", idempotency=idempotency)

    # --- steering -----------------------------------------------------------------------------------------------------

    async def cancel(self, job_id: str, run: int | None = None) -> Cancelled:
        """End a waiting job at once, or have a running command stopped; Conflict if it has ended or runs anew."""
        match await self._scripts.cancel(job_id, "" if run is None else str(run)):
            case [b"CANCELLED", propagating]:
                if propagating:
                    await self._propagate_quietly()
                return Cancelled.CANCELLED
            case [b"CANCELLING", tasks]:
                if tasks:
                    await self._arrays.work_on_quietly(job_id)
                return Cancelled.CANCELLING
            case [b"ENDED", status]:
                raise Conflict(f"job {job_id} has already ended: {status.decode()}")
            case reply:
                raise _not_this_run(reply, job_id, run)

    async def retry(self, job_id: str, run: int | None = None) -> None:
        """Start a new run of a failed or cancelled job, and re-arm the dependents that were skipped because of it."""
        match await self._scripts.retry(job_id, "" if run is None else str(run)):
            case [b"RETRIED", propagating, tasks]:
                if propagating:
                    await self._propagate_quietly()
                if tasks:
                    await self._arrays.work_on_quietly(job_id)
            case [b"NOT_ENDED", status]:
                raise Conflict(f"job {job_id} has not ended: {status.decode()}")
            case [b"SUCCEEDED"]:
                raise Conflict(f"job {job_id} is done; submit it again to run it again")
            case [b"SKIPPED", cause]:
                raise Conflict(f"job {job_id} waits for {cause.decode()}; retry that one")
            case reply:
                raise _not_this_run(reply, job_id, run)

    async def cancel_tasks(self, job_id: str, indexes: Sequence[int]) -> dict[str, int]:
        """Cancel some of an array's tasks; answers how many are `cancelled`, `cancelling`, or had `ended`."""
        return await self._tasks(job_id, "cancel", indexes)

    async def retry_tasks(self, job_id: str, indexes: Sequence[int]) -> dict[str, int]:
        """Run some of an array's tasks again; answers how many are `retried`, `ended` well, or have `not_ended`."""
        return await self._tasks(job_id, "retry", indexes)

    async def _tasks(self, job_id: str, what: str, indexes: Sequence[int]) -> dict[str, int]:
        array = (await self.job(job_id)).array
        if array is None:
            raise Conflict(f"job {job_id} has no array")
        if indexes and max(indexes) >= array.size:
            raise InvalidRequest(f"job {job_id} has the tasks 0 to {array.size - 1}", field="tasks")
        return await self._arrays.tasks(job_id, what, indexes)

    async def _propagate_quietly(self) -> None:
        with suppress(StoreUnavailable):  # the reaper goes on
            await self.upkeep.propagate()

    # --- reading ------------------------------------------------------------------------------------------------------

    async def job(self, job_id: str) -> Job:
        return await self._reader.job(job_id)

    async def jobs(self, job_ids: Sequence[str]) -> list[Job | None]:
        return await self._reader.jobs(job_ids)

    async def list_jobs(self, where: JobFilter, *, limit: int = 50, cursor: str | None = None) -> JobPage:
        return await self._listing.page(where, limit, cursor)

    async def output(self, job_id: str) -> Output:
        return await self._reader.output(job_id)

    async def queues(self) -> list[QueueState]:
        return await self._reader.queues()

    async def workers(self, *, limit: int = 1000, cursor: str | None = None) -> WorkerPage:
        return await self._reader.workers(limit, cursor or "")

    async def worker(self, worker: str) -> WorkerState:
        return await self._reader.worker(worker)

    async def workflow(self, workflow: str) -> Workflow:
        return await self._reader.workflow(workflow)

    async def workflow_jobs(self, workflow: str, limit: int = 1000) -> list[Job]:
        return await self._reader.workflow_jobs(workflow, limit)

    async def wait(self, job_id: str, timeout_s: float) -> Job:
        """Return the job when it has ended, or as it is after the time."""
        ends_at = time.monotonic() + timeout_s
        async with self._feed.watch(job_id) as changed:
            while True:
                changed.clear()
                job = await self.job(job_id)
                rest_s = ends_at - time.monotonic()
                if job.status.terminal or rest_s <= 0:
                    return job
                await happens(changed, within_s=min(rest_s, RECHECK_S))

    @asynccontextmanager
    async def changes(self, job_id: str) -> AsyncIterator[AsyncIterator[None]]:
        """Give an iterator that yields at once, and again whenever something happens to the job."""
        async with self._feed.watch(job_id) as changed:

            async def signals() -> AsyncIterator[None]:
                while True:
                    changed.clear()
                    yield
                    await happens(changed, within_s=RECHECK_S)

            yield signals()


def _not_this_run(reply: Any, job_id: str, run: int | None) -> Exception:
    match reply:
        case [b"UNKNOWN"]:
            return NotFound("job", job_id)
        case [b"OTHER_RUN", present]:
            return Conflict(f"job {job_id} is in run {present}, not in run {run}")
    return AssertionError(f"unknown reply: {reply!r}")
