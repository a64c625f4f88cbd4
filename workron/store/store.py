"""The store: all operations on jobs, in domain types. The facade of all code that uses Redis.

    Store              submit, cancel, retry; read jobs, wait for them       what the API calls
    Store.attempts     claim, heartbeat, finish, release, drain, leave …     what workers call
    Store.actions      bulk actions: created by the API, run by the reaper
    Store.schedules    put, read, list, delete schedules                     API and reaper
    Store.api_keys     create, revoke, find API keys                         what the API calls
    Store.audit        the audit log                                         what the API calls
    Store.maintenance  reap, promote, propagate, tidy, sweep                 what the reaper calls
    Store.spot_check   check some jobs in turn, and repair them              what the reaper calls
    Store.doctor       examine, and rebuild                                  what `workron doctor` calls
    Store.scripts      the transitions as they are                           what tests and tools call

Any call may raise StoreUnavailable. It is safe to repeat: by id, request id or fence (`cancel`, `retry`: by run).
"""

import math
import time
from collections.abc import AsyncIterator, Collection, Sequence, Set
from contextlib import asynccontextmanager
from typing import Final, Self

from workron import ids
from workron.doctor import Doctor, SpotCheck
from workron.errors import StoreRefused, StoreUnsuitable, is_outage
from workron.models import (
    Cancelled,
    Idempotency,
    Job,
    JobFilter,
    JobPage,
    NewJob,
    OnFailure,
    Output,
    QueueChange,
    QueuePage,
    QueueState,
    Submitted,
    Workflow,
)
from workron.models.workers import WorkerPage, WorkerState
from workron.redis.connection import BUDGET_S, Connection
from workron.redis.keys import Keys
from workron.redis.read_pool import Reads
from workron.redis.scripts import Scripts
from workron.redis.server_info import ServerInfo, check, server_info
from workron.runtime.signals import happens
from workron.settings import Settings
from workron.store.api_keys import ApiKeys
from workron.store.arrays import Arrays
from workron.store.attempts import Attempts
from workron.store.audit import AuditLog
from workron.store.bulk_actions import Actions
from workron.store.encode import new_workflow
from workron.store.explain import Explainer, Explanation
from workron.store.health import SCHEMA, Health, read_health, refusal_of
from workron.store.listing import Listing
from workron.store.maintenance import Maintenance
from workron.store.operator_actions import OperatorActions
from workron.store.outputs import Outputs
from workron.store.policy import Policy
from workron.store.queues import Queues
from workron.store.reader import Reader
from workron.store.schedule_book import ScheduleBook
from workron.store.submit import Submitter
from workron.store.watch import RECHECK_S, Watch


class Store:
    """All operations of one namespace on one Redis."""

    def __init__(
        self, connection: Connection, *, namespace: str = "default", policy: Policy | None = None, shebang: bool = True
    ) -> None:
        self.policy: Final = policy or Policy()
        self.connection: Final = connection
        self.keys: Final = Keys(namespace)
        self.scripts: Final = Scripts(connection, self.keys, shebang=shebang)
        self._reader = Reader(connection, self.keys, self.scripts)
        self._pages, self._brief, self._work = Reads(connection), Reads(connection), Reads(connection)
        self._arrays = Arrays(self.scripts)
        self._queues = Queues(self.scripts)
        self.submitter: Final = Submitter(self.scripts, self._reader, self._arrays)
        self.outputs: Final = Outputs(self.scripts, self._brief)
        self._watch = Watch(connection, self.keys)
        about = connection, self.keys, self.scripts
        self.actions: Final = Actions(*about, self._pages)
        self.schedules: Final = ScheduleBook(*about, self._brief)
        self.api_keys: Final = ApiKeys(*about)
        self.audit: Final = AuditLog(self.keys, self.scripts, self._pages)
        self.attempts: Final = Attempts(*about, self.policy, self._work)
        self.maintenance: Final = Maintenance(*about, self._reader, self.submitter, self._arrays, self.policy)
        self.doctor: Final = Doctor(*about, self.schedules.look)
        self.spot_check: Final = SpotCheck(*about)
        self._operator_actions = OperatorActions(self.scripts, self._arrays, self.maintenance)

    @classmethod
    def connect(cls, settings: Settings, *, budget_s: float = BUDGET_S) -> Self:
        """Build the store of `settings.redis`; nothing is sent yet. `budget_s`: maximum duration of a call."""
        if settings.redis is None:
            raise StoreRefused("no Redis is configured: give --redis URL, or start everything with `workron up`")
        key = Keys(settings.namespace).meta
        connection = Connection.open(settings.redis.get_secret_value(), key=key, budget_s=budget_s)
        store = cls(connection, namespace=settings.namespace, policy=Policy.of(settings))
        store.scripts.load()
        return store

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._watch.aclose()
        for reads in (self._pages, self._brief, self._work):
            await reads.aclose()
        await self.connection.aclose()

    # --- about the server ---------------------------------------------------------------------------------------------

    async def ping(self) -> None:
        """Raise StoreUnavailable unless Redis answers and accepts writes; one without memory for new work does."""
        refusal = await refusal_of(self.connection, self.keys)
        if refusal is not None and is_outage(refusal):
            raise refusal

    async def check(self, *, allow_eviction: bool = False) -> ServerInfo:
        """Return information on the server; raise StoreUnsuitable if jobs would not be safe there.

        The first caller marks the namespace with the version of its data.
        """
        info = await server_info(self.connection)
        check(info, allow_eviction=allow_eviction)
        if not await self.check_version():
            # A full server would reject this write, and has to be drained by the starting processes.
            await self.connection.call("HSETNX", self.keys.meta, "schema", SCHEMA)
        return info

    async def check_version(self) -> bool:
        """Return whether the namespace is marked with a data version; raise StoreUnsuitable if that is not ours."""
        schema = await self.connection.call("HGET", self.keys.meta, "schema")
        if schema is not None and schema != str(SCHEMA).encode():
            said = schema.decode("utf-8", "backslashreplace")
            raise StoreUnsuitable(
                f"the data in Redis has schema version {said}, this Workron supports version {SCHEMA}: "
                "use another --data-dir or --redis, or the Workron that stored it"
            )
        return schema is not None

    async def health(self) -> Health:
        return await read_health(self.connection, self.keys)

    # --- limits -------------------------------------------------------------------------------------------------------

    async def change_queue(self, queue: str, change: QueueChange) -> QueueState:
        """Change the settings of a queue; return the changed queue."""
        await self._queues.change(queue, change)
        return await self.queue(queue)

    async def purge_queue(self, queue: str, *, within_s: float = math.inf) -> tuple[int, bool]:
        """Cancel jobs that are ready to run in a queue; return their number, and whether others are left."""
        cancelled, more = await self._queues.purge(queue, within_s)
        if cancelled:
            await self._operator_actions.propagate_quietly()
        return cancelled, more

    async def remove_queue(self, queue: str) -> None:
        await self._queues.remove(queue)

    async def queue(self, queue: str) -> QueueState:
        return (await self._reader.queues_named([queue]))[0]

    async def limit_all(self, settings: Settings) -> None:
        """Store the limits given by the settings in Redis, for all submitters; others stay unchanged."""
        for scope, most in (("queues", settings.max_pending), ("total", settings.max_pending_total)):
            if most is not None:
                await self.scripts.queue_limit(scope, "" if most == "none" else most)

    # --- submitting ---------------------------------------------------------------------------------------------------

    async def submit(
        self,
        jobs: Sequence[NewJob],
        *,
        workflow: str | None = None,
        as_workflow: bool = False,
        on_failure: OnFailure = OnFailure.CONTINUE,
        idempotency: Idempotency | None = None,
    ) -> Submitted:
        """Store jobs, all or nothing; `workflow` is a name. Ids are consecutive, parents precede their children."""
        await self._arrays.check(jobs, self._reader.jobs)
        # The id behind the last job's: the same again if the submission is repeated.
        workflow_id = ids.ids_from(jobs[-1].id, 2)[1] if as_workflow or workflow is not None else ""
        watched = on_failure is OnFailure.STOP or any(job.final for job in jobs)
        _watch(jobs, watched=watched)
        new = new_workflow(workflow or "", on_failure, watched=watched, key=jobs[0].key) if workflow_id else b""
        return await self.submitter.submit(jobs, workflow=workflow_id, new=new, idempotency=idempotency)

    async def add(self, workflow: str, jobs: Sequence[NewJob], *, idempotency: Idempotency | None = None) -> Submitted:
        """Add jobs to a workflow, all or nothing; raise Conflict if it has ended or accepts no more."""
        _watch(jobs, watched=(await self.workflow(workflow)).watched)
        await self._arrays.check(jobs, self._reader.jobs)
        return await self.submitter.submit(jobs, workflow=workflow, new=b"", idempotency=idempotency)

    # --- operator actions ---------------------------------------------------------------------------------------------

    async def cancel(self, job_id: str, run: int | None = None, *, cascade: bool = False) -> Cancelled:
        return await self._operator_actions.cancel(job_id, run, cascade=cascade)

    async def retry(self, job_id: str, run: int | None = None) -> None:
        await self._operator_actions.retry(job_id, run)

    async def cancel_workflow(self, workflow: str) -> None:
        await self._operator_actions.cancel_workflow(workflow)

    async def delete(self, job_id: str) -> None:
        await self._operator_actions.delete(job_id)

    async def cancel_tasks(self, job_id: str, indexes: Sequence[int]) -> dict[str, int]:
        return await self._operator_actions.cancel_tasks(await self.job(job_id), indexes)

    async def retry_tasks(self, job_id: str, indexes: Sequence[int]) -> dict[str, int]:
        return await self._operator_actions.retry_tasks(await self.job(job_id), indexes)

    # --- reading ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _reading(self, turns: Reads) -> AsyncIterator[Reader]:
        async with turns.turn() as connection:
            yield Reader(connection, self.keys, self.scripts)

    async def job(self, job_id: str) -> Job:
        async with self._reading(self._brief) as reader:
            return await reader.job(job_id)

    async def explain(self, job_id: str) -> Explanation:
        async with self._brief.turn() as connection:
            explainer = Explainer(connection, self.keys, Reader(connection, self.keys, self.scripts))
            return await explainer.explain(job_id)

    async def jobs(self, job_ids: Sequence[str]) -> list[Job | None]:
        """Return jobs just submitted or claimed, without waiting behind large reads."""
        async with self._reading(self._work) as reader:
            return await reader.jobs(job_ids)

    async def queues_of(self, job_ids: Sequence[str]) -> list[str | None]:
        return await self._reader.queues_of(job_ids)

    async def list_jobs(self, where: JobFilter, *, limit: int = 50, cursor: str | None = None) -> JobPage:
        async with self._pages.turn() as connection:
            reader = Reader(connection, self.keys, self.scripts)
            return await Listing(connection, self.keys, reader).page(where, limit, cursor)

    async def output(self, job_id: str) -> Output:
        return await self.outputs.latest(job_id)

    async def queues(self) -> list[QueueState]:
        async with self._reading(self._pages) as reader:
            return await reader.all_queues()

    async def queue_page(self, limit: int, after: str = "", among: Collection[str] | None = None) -> QueuePage:
        async with self._reading(self._pages) as reader:
            return await reader.queues(limit, after, among)

    async def workers(self, *, limit: int = 1000, cursor: str | None = None) -> WorkerPage:
        async with self._reading(self._pages) as reader:
            return await reader.workers(limit, cursor or "")

    async def worker(self, worker: str) -> WorkerState:
        return await self._reader.worker(worker)

    async def workflow(self, workflow: str) -> Workflow:
        return await self._reader.workflow(workflow)

    async def named_jobs(self, workflow: str, names: Set[str]) -> dict[str, str]:
        async with self._reading(self._work) as reader:
            return await reader.named_jobs(workflow, names)

    async def workflow_jobs(self, workflow: str, limit: int = 1000) -> list[Job]:
        async with self._reading(self._pages) as reader:
            return await reader.workflow_jobs(workflow, limit)

    async def wait(self, job_id: str, timeout_s: float) -> Job:
        """Return the job once it has ended, or its current state after a timeout."""
        ends_at = time.monotonic() + timeout_s
        async with self._watch.watch(job_id) as changed:
            while True:
                changed.clear()
                job = await self.job(job_id)
                rest_s = ends_at - time.monotonic()
                if job.status.terminal or rest_s <= 0:
                    return job
                await happens(changed, within_s=min(rest_s, RECHECK_S))

    @asynccontextmanager
    async def changes(self, job_id: str) -> AsyncIterator[AsyncIterator[None]]:
        """Provide an iterator that yields at once, and again on every event of the job."""
        async with self._watch.watch(job_id) as changed:

            async def signals() -> AsyncIterator[None]:
                while True:
                    changed.clear()
                    yield
                    await happens(changed, within_s=RECHECK_S)

            yield signals()


def _watch(jobs: Sequence[NewJob], *, watched: bool) -> None:
    for job in jobs if watched else ():
        job.watched = True
