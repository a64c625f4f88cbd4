"""Access checks for keys that are limited to queues: they may see and change all jobs of these queues.

Anything else does not exist for them (404), except if a request names a queue (403). They see the workflows that
were submitted with them. Keys without this limit pass all checks without a call to the store.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from starlette.requests import Request

from api.auth.callers import Caller, caller_of
from workron.errors import Conflict, Forbidden, NotFound, StoreUnavailable, UniqueConflict, UnknownDependency
from workron.models import Claim, Job, NewJob
from workron.models.workers import WorkerState
from workron.schedules.models import Definition, Schedule

if TYPE_CHECKING:
    from workron.store import Store

_HELD_ELSEWHERE: Final = "a job in another queue holds the unique key"


def use_queues(caller: Caller, queues: Iterable[str]) -> None:
    """Raise Forbidden if a queue is outside the caller's queues."""
    for queue in queues:
        if not caller.sees(queue):
            raise Forbidden(f"this key has no access to the queue {queue}", queue=queue)


def use_all_queues(caller: Caller, why: str) -> None:
    """Raise Forbidden if the caller is limited to queues: the operation concerns all queues."""
    if caller.queues is not None:
        raise Forbidden(f"this key is limited to the queues {', '.join(sorted(caller.queues))}: {why}")


async def submit(store: "Store", caller: Caller, jobs: Sequence[NewJob]) -> None:
    """Stamp the caller's key id on each job; raise Forbidden if a job is outside the caller's queues."""
    for job in jobs:
        job.key = caller.key
    if caller.queues is None:
        return
    use_queues(caller, (job.queue for job in jobs))
    for job in jobs:
        if job.unique is not None:
            _own_key(caller, "unique", ":", *job.unique.key.partition(":"))
        if job.concurrency is not None:  # queues have dots, and these keys no colons
            _own_key(caller, "concurrency", ".", *job.concurrency.key.rpartition("."))
    own = {job.id for job in jobs}
    others = sorted({edge.job for job in jobs for edge in job.depends_on} - own)
    queues = await store.queues_of(others)
    unknown = [job_id for job_id, queue in zip(others, queues, strict=True) if queue is None or not caller.sees(queue)]
    if unknown:
        raise UnknownDependency(unknown[:100])


def _own_key(caller: Caller, kind: str, mark: str, queue: str, found: str, rest: str) -> None:
    """Raise Forbidden for a concurrency or unique key without the prefix of an own queue.

    These keys are shared by all queues: with any of them, a submitter could block or replace jobs of others.
    """
    if not found or not caller.sees(queue):
        like = f"{min(caller.queues or ())}{mark}{rest or queue}"
        raise Forbidden(
            f"with this API key, {kind} keys must start with one of its queues, e.g. {like}", queue=queue or None
        )


def shown(caller: Caller, jobs: Iterable[Job | None]) -> list[Job]:
    """Return the jobs of a submission; raise Conflict if one of its unique keys is held outside the caller's queues."""
    found = [job for job in jobs if job is not None]
    if any(not caller.sees(job.queue) for job in found):
        raise Conflict(_HELD_ELSEWHERE)
    return found


async def hidden(store: "Store", caller: Caller, error: UniqueConflict) -> Conflict:
    """Return the error, without the job's id if it is outside the caller's queues."""
    if caller.queues is None:
        return error
    with suppress(StoreUnavailable):
        [queue] = await store.queues_of([error.job_id])
        if queue is not None and caller.sees(queue):
            return error
    return Conflict(_HELD_ELSEWHERE)


async def known_names(store: "Store", caller: Caller, names: Mapping[str, str]) -> dict[str, str]:
    """Return a workflow's jobs by name, limited to the caller's queues."""
    if caller.queues is None or not names:
        return dict(names)
    queues = await store.queues_of(list(names.values()))
    found = zip(names.items(), queues, strict=True)
    return {name: job_id for (name, job_id), queue in found if queue is not None and caller.sees(queue)}


async def visible(store: "Store", caller: Caller, jobs: Sequence[tuple[str, int]]) -> Sequence[tuple[str, int]]:
    """Return the (job, fence) pairs that are in the caller's queues; the request can name jobs of any worker."""
    if caller.queues is None or not jobs:
        return jobs
    queues = await store.queues_of([job_id for job_id, _ in jobs])
    return [job for job, queue in zip(jobs, queues, strict=True) if queue is None or caller.sees(queue)]


async def see_jobs(request: Request, store: "Store", *job_ids: str) -> None:
    """Raise NotFound for jobs outside the caller's queues."""
    caller = caller_of(request)
    if caller.queues is None or not job_ids:
        return
    for job_id, queue in zip(job_ids, await store.queues_of(job_ids), strict=True):
        if queue is None or not caller.sees(queue):
            raise NotFound("job", job_id)


async def unseen(request: Request, store: "Store", job_ids: Iterable[str]) -> set[str]:
    """Return the jobs of a worker's reports that are outside the caller's queues: a job can be moved after its claim.

    Deleted jobs are not included: the store reports them.
    """
    caller, ids = caller_of(request), list(job_ids)
    if caller.queues is None or not ids:
        return set()
    queues = await store.queues_of(ids)
    return {job_id for job_id, queue in zip(ids, queues, strict=True) if queue is not None and not caller.sees(queue)}


def claimed(store: "Store", caller: Caller, claims: Iterable[Claim]) -> list[Claim]:
    """Return the claims that the caller may see.

    Claims of a repeated request can be of other queues, if its worker and request id were guessed. The
    token of a workflow's job must not give access beyond the caller's queues.
    """
    if caller.queues is None or caller.key is None:
        return list(claims)
    tokens, key_id = store.attempts.tokens, caller.key
    return [tokens.for_holder(claim, key_id) for claim in claims if caller.sees(claim.queue)]


async def see_workflow(request: Request, store: "Store", workflow_id: str) -> None:
    """Raise NotFound for a workflow submitted with another key, if the caller's key is limited."""
    caller = caller_of(request)
    in_own_job = caller.space == workflow_id  # by a token of one of its jobs
    if caller.queues is not None and not in_own_job and (await store.workflow(workflow_id)).key != caller.key:
        raise NotFound("workflow", workflow_id)


async def see_worker(store: "Store", caller: Caller, worker_id: str) -> WorkerState:
    """Return a worker; raise NotFound also if it serves queues outside the caller's."""
    found = await store.worker(worker_id)
    if not all(map(caller.sees, found.info.queues)):
        raise NotFound("worker", worker_id)
    return found


async def speak_for(store: "Store", caller: Caller, worker_id: str) -> None:
    """Raise NotFound if a request names a worker that is hidden from the caller; an unknown one may be new."""
    if caller.queues is not None:
        try:
            found = await store.worker(worker_id)
        except NotFound:
            return
        if not all(map(caller.sees, found.info.queues)):
            raise NotFound("worker", worker_id)


def queues_of_work(definition: Definition) -> set[str]:
    """Return the queues of the jobs that a schedule starts."""
    jobs = definition.work.get("jobs", ()) if definition.is_workflow else [definition.work]
    return {job.get("queue") or "default" for job in jobs}


def sees_schedule(caller: Caller, schedule: Schedule) -> bool:
    return caller.queues is None or all(map(caller.sees, queues_of_work(schedule.definition)))
