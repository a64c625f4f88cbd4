"""Submitting: one job, many jobs, a workflow. Stored whole or not at all, and once per Idempotency-Key."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from api import openapi, problems, schemas
from api.auth import queue_rights
from api.auth.callers import SUBMIT, caller_of, note_targets
from api.context import context_of
from api.http import body, idempotency
from api.http.large import (
    LARGE,
    MANY,
    PiecesResponse,
    in_thread,
    release,
    without_collections,
    written_list,
)
from api.http.paths import WorkflowId
from api.operations import JsonBody, Operations
from api.routes.workflows import MOST_JOBS, workflow_answer
from workron import ids, models
from workron.errors import Forgotten, NotFound, TooLarge
from workron.models import Job, Submitted
from workron.specs.job import NewJob
from workron.specs.ordering import known_form, workflow_jobs
from workron.specs.workflow import MoreJobs, NewJobs, NewWorkflow

Many = TypeVar("Many", NewJobs, NewWorkflow)

router = Operations("submit")

_MOST_EDGES: Final = 500_000
_LOCATION: Final = {"Location": {"required": True, "schema": {"type": "string", "format": "uri-reference"}}}
_REPLAYED: Final = {"Idempotency-Replayed": {"schema": {"type": "string", "enum": ["true"]}}}
_FAILURES: Final = (
    problems.IDEMPOTENCY_CONFLICT,
    problems.UNIQUE_CONFLICT,
    problems.FORGOTTEN,
    problems.UNKNOWN_DEPENDENCY,
    problems.STORE_FULL,
    problems.QUEUE_FULL,
)


def _stored(model: type[BaseModel], headers: Mapping[str, Any] = MappingProxyType({})) -> openapi.Responses:
    created = {"description": "Stored", "model": model, "headers": {**headers}}
    repeated = {
        "description": "Already stored, with this Idempotency-Key or as the jobs that hold the unique keys",
        "model": model,
        "headers": _REPLAYED,
    }
    return {201: created, 200: repeated}


@router.operation(
    "POST /jobs",
    SUBMIT,
    schemas.Job,
    *_FAILURES,
    status=201,
    responses=_stored(schemas.Job, _LOCATION),
    extra=idempotency.PARAMETER,
)
async def submit_job(request: Request, raw: Annotated[bytes, JsonBody(NewJob)]) -> Response:
    """Submit one job."""
    context = context_of(request)
    large = len(raw) > LARGE
    with without_collections(large=large):
        new = await body.parse_many(NewJob, raw)
        job = new.to_new_job(ids.new_id(), known_form(new.dependencies()))
        await queue_rights.submit(context.store, caller_of(request), [job])
        same = await in_thread(idempotency.of, request, raw, large=large)
        submitted = await context.store.submit([job], idempotency=same)
    [job_id] = submitted.ids
    if submitted.stored_at_ms is not None:
        document = schemas.new_job_document(job, submitted.stored_at_ms)
    else:
        [found] = await _documents(request, submitted)
        document = schemas.job_document(found)
    note_targets(request, job_id)
    return _answer(submitted, document, f"/jobs/{job_id}")


@router.operation(
    "POST /jobs/bulk",
    SUBMIT,
    schemas.JobPage,
    *_FAILURES,
    status=201,
    responses=_stored(schemas.JobPage),
    extra=idempotency.PARAMETER,
)
async def submit_jobs(request: Request, raw: Annotated[bytes, JsonBody(NewJobs)]) -> Response:
    """Submit many independent jobs, all or nothing."""
    context = context_of(request)
    large = len(raw) > LARGE
    with without_collections(large=large):
        _, jobs, same = await _allowed(request, raw, NewJobs, _independent)
        submitted = await context.store.submit(jobs, idempotency=same)
        note_targets(request, *submitted.ids)
        if (at_ms := submitted.stored_at_ms) is None:
            return await _listed(request, submitted)
        answer = await _list_of(submitted, jobs, partial(schemas.new_job_document, stored_at_ms=at_ms))
        await in_thread(release, jobs, large=large)
        return answer


@router.operation(
    "POST /workflows",
    SUBMIT,
    schemas.Workflow,
    *_FAILURES,
    problems.DEPENDENCY_CYCLE,
    status=201,
    responses=_stored(schemas.Workflow, _LOCATION),
    extra=idempotency.PARAMETER,
)
async def submit_workflow(request: Request, raw: Annotated[bytes, JsonBody(NewWorkflow)]) -> Response:
    """Submit jobs that depend on each other, by name or by id, all or nothing."""
    context = context_of(request)
    large = len(raw) > LARGE
    with without_collections(large=large):
        new, jobs, same = await _allowed(request, raw, NewWorkflow, _in_order)
        submitted = await context.store.submit(
            jobs, workflow=new.name, as_workflow=True, on_failure=new.on_failure, idempotency=same
        )
        return await _workflow_answer(request, submitted, new, jobs)


async def _allowed(
    request: Request, raw: bytes, model: type[Many], to_jobs: Callable[[list[Any]], list[models.NewJob]]
) -> tuple[Many, list[models.NewJob], models.Idempotency | None]:
    """Return what was sent, and its jobs as the store knows them, which the caller may submit."""
    large = len(raw) > LARGE
    new = await body.parse_many(model, raw)
    jobs = await in_thread(to_jobs, new.jobs, large=large)
    await queue_rights.submit(context_of(request).store, caller_of(request), jobs)
    return new, jobs, await in_thread(idempotency.of, request, raw, large=large)


async def _workflow_answer(
    request: Request, submitted: Submitted, new: NewWorkflow, jobs: list[models.NewJob]
) -> Response:
    if submitted.workflow is None:
        raise NotFound("workflow", "of this submission")
    if (at_ms := submitted.stored_at_ms) is not None:
        make = partial(schemas.new_workflow_document, submitted, new.name, new.on_failure, jobs, at_ms, MOST_JOBS)
        document = await in_thread(make, large=len(jobs) > MANY)
        await in_thread(release, jobs, large=len(jobs) > MANY)
    else:
        try:
            document = await workflow_answer(request, submitted.workflow)
        except NotFound as error:
            raise Forgotten(submitted.workflow) from error
    note_targets(request, submitted.workflow)
    return _answer(submitted, document, f"/workflows/{submitted.workflow}")


@router.operation(
    "POST /workflows/{workflow_id}/jobs",
    SUBMIT,
    schemas.JobPage,
    *_FAILURES,
    problems.CONFLICT,
    problems.DEPENDENCY_CYCLE,
    status=201,
    responses=_stored(schemas.JobPage),
    extra=idempotency.PARAMETER,
)
async def add_jobs(request: Request, workflow_id: WorkflowId, raw: Annotated[bytes, JsonBody(MoreJobs)]) -> Response:
    """Add jobs to an unfinished workflow, all or nothing; names refer to these jobs, then to the workflow's.

    A command may do so with its `$WORKRON_TOKEN` while its attempt is running.
    """
    context = context_of(request)
    await queue_rights.see_workflow(request, context.store, workflow_id)
    large = len(raw) > LARGE
    with without_collections(large=large):
        new = (await body.parse_many(MoreJobs, raw)).jobs
        names = await in_thread(_names_of_others, new, large=large)
        caller = caller_of(request)
        known = await context.store.named_jobs(workflow_id, names) if names else {}
        shown = await queue_rights.known_names(context.store, caller, known)
        jobs = await in_thread(_in_order, new, shown, large=large)
        await queue_rights.submit(context.store, caller, jobs)
        same = await in_thread(idempotency.of, request, raw, large=large)
        submitted = await context.store.add(workflow_id, jobs, idempotency=same)
        await in_thread(release, jobs, large=large)
        note_targets(request, *submitted.ids)
        return await _listed(request, submitted)


def _independent(new: list[NewJob]) -> list[models.NewJob]:
    """Convert jobs for the store, consuming the list."""
    _limit_edges(new)
    jobs = [
        job.to_new_job(job_id, known_form(job.dependencies()))
        for job, job_id in zip(new, ids.new_ids(len(new)), strict=True)
    ]
    release(new)
    return jobs


def _in_order(new: list[Any], known: Mapping[str, str] = MappingProxyType({})) -> list[models.NewJob]:
    """Convert the jobs of a workflow for the store, parents first, consuming the list."""
    _limit_edges(new)
    jobs = workflow_jobs(new, known)
    release(new)
    return jobs


def _names_of_others(new: Sequence[NewJob]) -> set[str]:
    own = {job.name for job in new}
    return {name for job in new for name in job.parents() if name not in own and not ids.is_id(name)}


async def _documents(request: Request, submitted: Submitted) -> list[Job]:
    """Return the jobs of a submission; of a repeated one those still stored, Forgotten if there are none."""
    jobs = await context_of(request).store.jobs(submitted.ids)
    if not any(jobs):
        raise Forgotten(submitted.ids[0])
    return queue_rights.shown(caller_of(request), jobs)


async def _listed(request: Request, submitted: Submitted) -> Response:
    """Return the jobs of a submission as they are now."""
    return await _list_of(submitted, await _documents(request, submitted), schemas.job_document)


async def _list_of(submitted: Submitted, jobs: Sequence[Any], make: Callable[[Any], dict[str, Any]]) -> Response:
    if len(jobs) <= MANY:
        return _answer(submitted, schemas.list_document(map(make, jobs)))
    pieces = await in_thread(lambda: written_list(map(make, jobs)))
    return PiecesResponse(pieces, *_status_of(submitted))


def _limit_edges(jobs: Sequence[NewJob]) -> None:
    if sum(len(job.depends_on) for job in jobs) > _MOST_EDGES:
        raise TooLarge(f"a submission can have at most {_MOST_EDGES:,} dependencies")


def _answer(submitted: Submitted, document: dict[str, Any], location: str | None = None) -> Response:
    return schemas.json_response(document, *_status_of(submitted, location))


def _status_of(submitted: Submitted, location: str | None = None) -> tuple[int, dict[str, str] | None]:
    """Return the status and the headers of the response to a submission."""
    if submitted.repeated:
        return 200, {"idempotency-replayed": "true"}
    if submitted.returned:
        return 200, None
    return 201, {"location": location} if location else None
