"""What a key that is limited to queues may see and touch: the jobs of these queues, whoever submitted them.

What it may not see is not there for it (404), except where a request names a queue (403). The workflows that it may see
are those that were submitted with it. Keys without queues pass everything here without a call to the store.
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
    """Refuse a request that names a queue which the key does not have."""
    for queue in queues:
        if not caller.sees(queue):
            raise Forbidden(f"this key has no access to the queue {queue}", queue=queue)


def use_all_queues(caller: Caller, why: str) -> None:
    """Refuse what concerns all queues to a key that has only some."""
    if caller.queues is not None:
        raise Forbidden(f"this key is limited to the queues {', '.join(sorted(caller.queues))}: {why}")


async def submit(store: "Store", caller: Caller, jobs: Sequence[NewJob]) -> None:
    """Refuse jobs that the key may not submit, and have the others say with which key they were."""
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
    """Keys are common to all queues: with any of them, a submitter could hold up or replace the jobs of others."""
    if not found or not caller.sees(queue):
        like = f"{min(caller.queues or ())}{mark}{rest or queue}"
        raise Forbidden(
            f"with this API key, {kind} keys must start with one of its queues, e.g. {like}", queue=queue or None
        )


def shown(caller: Caller, jobs: Iterable[Job | None]) -> list[Job]:
    """Return the jobs of a submission; Conflict if a unique key of it is held where the API key does not see."""
    found = [job for job in jobs if job is not None]
    if any(not caller.sees(job.queue) for job in found):
        raise Conflict(_HELD_ELSEWHERE)
    return found


async def hidden(store: "Store", caller: Caller, error: UniqueConflict) -> Conflict:
    """Return the error, without the job that it names if the key does not see that."""
    if caller.queues is None:
        return error
    with suppress(StoreUnavailable):
        [queue] = await store.queues_of([error.job_id])
        if queue is not None and caller.sees(queue):
            return error
    return Conflict(_HELD_ELSEWHERE)


async def known_names(store: "Store", caller: Caller, names: Mapping[str, str]) -> dict[str, str]:
    """Return those of a workflow's jobs, by name, that the key sees."""
    if caller.queues is None or not names:
        return dict(names)
    queues = await store.queues_of(list(names.values()))
    found = zip(names.items(), queues, strict=True)
    return {name: job_id for (name, job_id), queue in found if queue is not None and caller.sees(queue)}


async def told(store: "Store", caller: Caller, jobs: Sequence[tuple[str, int]]) -> Sequence[tuple[str, int]]:
    """Return those of some jobs, with their fences, that the key sees; any worker's may be asked for."""
    if caller.queues is None or not jobs:
        return jobs
    queues = await store.queues_of([job_id for job_id, _ in jobs])
    return [job for job, queue in zip(jobs, queues, strict=True) if queue is None or caller.sees(queue)]


async def see_jobs(request: Request, store: "Store", *job_ids: str) -> None:
    """Raise NotFound for jobs that the key does not see, as if there were none."""
    caller = caller_of(request)
    if caller.queues is None or not job_ids:
        return
    for job_id, queue in zip(job_ids, await store.queues_of(job_ids), strict=True):
        if queue is None or not caller.sees(queue):
            raise NotFound("job", job_id)


async def unseen(request: Request, store: "Store", job_ids: Iterable[str]) -> set[str]:
    """Return those jobs of a worker's reports that the key does not see: one may have been moved since it was claimed.

    A job that is gone is not among them: the store has its own answer.
    """
    caller, ids = caller_of(request), list(job_ids)
    if caller.queues is None or not ids:
        return set()
    queues = await store.queues_of(ids)
    return {job_id for job_id, queue in zip(ids, queues, strict=True) if queue is not None and not caller.sees(queue)}


def claimed(store: "Store", caller: Caller, claims: Iterable[Claim]) -> list[Claim]:
    """Return what the key may be told of the claims of its request.

    Those of a repeated request may be of another key's queues, if its worker and request id were guessed. And with the
    token that comes with a workflow's job nobody is to get beyond the queues of a key that is limited to some.
    """
    if caller.queues is None or caller.key is None:
        return list(claims)
    tokens, key_id = store.attempts.tokens, caller.key
    return [tokens.for_holder(claim, key_id) for claim in claims if caller.sees(claim.queue)]


async def see_workflow(request: Request, store: "Store", workflow_id: str) -> None:
    """Raise NotFound for a workflow that was not submitted with this key, if the key is limited."""
    caller = caller_of(request)
    in_own_job = caller.space == workflow_id  # by a token of one of its jobs
    if caller.queues is not None and not in_own_job and (await store.workflow(workflow_id)).key != caller.key:
        raise NotFound("workflow", workflow_id)


async def see_worker(store: "Store", caller: Caller, worker_id: str) -> WorkerState:
    """Return a worker; NotFound also for one that serves queues which the key does not have."""
    found = await store.worker(worker_id)
    if not all(map(caller.sees, found.info.queues)):
        raise NotFound("worker", worker_id)
    return found


async def speak_for(store: "Store", caller: Caller, worker_id: str) -> None:
    """Raise NotFound where a request names a worker that the key does not see; one that nobody knows may be new."""
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
