"""Submitting: one job, many jobs, a workflow. Stored whole or not at all, and once per Idempotency-Key."""

from collections.abc import Sequence
from typing import Any, Final

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from api import body, idempotency, openapi, problems, rights, schemas
from api.bodies import MoreJobs, NewJobs, NewWorkflow
from api.callers import SUBMIT, ScopedRoute, caller_of, needs, note_targets
from api.context import Context, context_of
from api.job_body import NewJob
from api.placing import known_form, workflow_jobs
from api.routes.workflows import MOST_JOBS, workflow_answer
from workron import ids
from workron.errors import Forgotten, NotFound, TooLarge
from workron.models import Submitted

router = APIRouter(route_class=ScopedRoute, tags=["submit"])

_MOST_EDGES: Final = 500_000
_LOCATION: Final = {"Location": {"required": True, "schema": {"type": "string", "format": "uri-reference"}}}
_REPLAYED: Final = {"Idempotency-Replayed": {"schema": {"type": "string", "enum": ["true"]}}}
_FAILURES: Final = (
    problems.IDEMPOTENCY_CONFLICT,
    problems.UNIQUE_CONFLICT,
    problems.FORGOTTEN,
    problems.TOO_LARGE,
    problems.UNSUPPORTED_MEDIA_TYPE,
    problems.VALIDATION,
    problems.UNKNOWN_DEPENDENCY,
    problems.STORE_UNAVAILABLE,
    problems.STORE_FULL,
    problems.QUEUE_FULL,
)


def _documented(model: type[BaseModel], headers: dict[str, Any], *kinds: problems.Kind) -> openapi.Responses:
    created = {"description": "Stored", "model": model, "headers": headers}
    repeated = {
        "description": "Stored before, by the same Idempotency-Key; or by those that hold the unique keys",
        "model": model,
        "headers": _REPLAYED,
    }
    return openapi.answers({201: created, 200: repeated}, *_FAILURES, *kinds)


@router.post(
    "/jobs",
    operation_id="submit_job",
    status_code=201,
    response_model=schemas.Job,
    responses=_documented(schemas.Job, _LOCATION),
    openapi_extra=needs(SUBMIT) | openapi.body(NewJob) | idempotency.PARAMETER,
)
async def submit_job(request: Request) -> Response:
    """Submit one job."""
    context = context_of(request)
    raw = await _json_body(request, context)
    new = body.parse(NewJob, raw)
    job = new.to_new_job(ids.new_id(), known_form(new.dependencies()))
    await rights.submit(context.store, caller_of(request), [job])
    submitted = await context.store.submit([job], idempotency=idempotency.of(request, raw))
    [job_id] = submitted.ids
    if submitted.stored_at_ms is not None:
        document = schemas.new_job_document(job, submitted.stored_at_ms)
    else:
        [document] = await _documents(request, submitted)
    note_targets(request, job_id)
    return _answer(submitted, document, f"/jobs/{job_id}")


@router.post(
    "/jobs/bulk",
    operation_id="submit_jobs",
    status_code=201,
    response_model=schemas.JobPage,
    responses=_documented(schemas.JobPage, {}),
    openapi_extra=needs(SUBMIT) | openapi.body(NewJobs) | idempotency.PARAMETER,
)
async def submit_jobs(request: Request) -> Response:
    """Submit many independent jobs, all or none."""
    context = context_of(request)
    raw = await _json_body(request, context)
    new = body.parse(NewJobs, raw).jobs
    _limit_edges(new)
    jobs = [
        job.to_new_job(job_id, known_form(job.dependencies()))
        for job, job_id in zip(new, ids.new_ids(len(new)), strict=True)
    ]
    await rights.submit(context.store, caller_of(request), jobs)
    submitted = await context.store.submit(jobs, idempotency=idempotency.of(request, raw))
    if (at_ms := submitted.stored_at_ms) is not None:
        documents = [schemas.new_job_document(job, at_ms) for job in jobs]
    else:
        documents = await _documents(request, submitted)
    note_targets(request, *submitted.ids)
    return _answer(submitted, schemas.list_document(documents))


@router.post(
    "/workflows",
    operation_id="submit_workflow",
    status_code=201,
    response_model=schemas.Workflow,
    responses=_documented(schemas.Workflow, _LOCATION, problems.DEPENDENCY_CYCLE),
    openapi_extra=needs(SUBMIT) | openapi.body(NewWorkflow) | idempotency.PARAMETER,
)
async def submit_workflow(request: Request) -> Response:
    """Submit jobs that depend on each other, by name or by id; all or none."""
    context = context_of(request)
    raw = await _json_body(request, context)
    new = body.parse(NewWorkflow, raw)
    _limit_edges(new.jobs)
    jobs = workflow_jobs(new.jobs)
    await rights.submit(context.store, caller_of(request), jobs)
    submitted = await context.store.submit(
        jobs, workflow=new.name, as_workflow=True, on_failure=new.on_failure, idempotency=idempotency.of(request, raw)
    )
    if submitted.workflow is None:
        raise NotFound("workflow", "of this submission")
    if (at_ms := submitted.stored_at_ms) is not None:
        document = schemas.new_workflow_document(submitted, new.name, new.on_failure, jobs, at_ms, MOST_JOBS)
    else:
        try:
            document = await workflow_answer(request, submitted.workflow)
        except NotFound as error:
            raise Forgotten(submitted.workflow) from error
    note_targets(request, submitted.workflow)
    return _answer(submitted, document, f"/workflows/{submitted.workflow}")


@router.post(
    "/workflows/{workflow_id}/jobs",
    operation_id="add_jobs",
    status_code=201,
    response_model=schemas.JobPage,
    responses=_documented(schemas.JobPage, {}, problems.NOT_FOUND, problems.CONFLICT, problems.DEPENDENCY_CYCLE),
    openapi_extra=needs(SUBMIT) | openapi.body(MoreJobs) | idempotency.PARAMETER,
)
async def add_jobs(request: Request, workflow_id: str) -> Response:
    """Add jobs to a workflow that has not ended, all or none; names are of these jobs, else of the workflow's.

    A command may do so with its `$WORKRON_TOKEN`, while its attempt runs.
    """
    if not ids.is_id(workflow_id):
        raise NotFound("workflow", workflow_id)
    context = context_of(request)
    await rights.see_workflow(request, context.store, workflow_id)
    raw = await _json_body(request, context)
    new = body.parse(MoreJobs, raw).jobs
    _limit_edges(new)
    own = {job.name for job in new}
    names = {name for job in new for name in job.parents() if name not in own and not ids.is_id(name)}
    caller = caller_of(request)
    known = await context.store.named_jobs(workflow_id, names) if names else {}
    jobs = workflow_jobs(new, await rights.known_names(context.store, caller, known))
    await rights.submit(context.store, caller, jobs)
    submitted = await context.store.add(workflow_id, jobs, idempotency=idempotency.of(request, raw))
    note_targets(request, *submitted.ids)
    return _answer(submitted, schemas.list_document(await _documents(request, submitted)))


async def _documents(request: Request, submitted: Submitted) -> list[dict[str, Any]]:
    """Return the jobs of a submission, of one that was stored before those that are left; Forgotten if none is."""
    jobs = await context_of(request).store.jobs(submitted.ids)
    if not any(jobs):
        raise Forgotten(submitted.ids[0])
    return [schemas.job_document(job) for job in rights.shown(caller_of(request), jobs)]


def _limit_edges(jobs: Sequence[NewJob]) -> None:
    if sum(len(job.depends_on) for job in jobs) > _MOST_EDGES:
        raise TooLarge(f"a submission can have at most {_MOST_EDGES:,} dependencies")


async def _json_body(request: Request, context: Context) -> bytes:
    body.require_json(request)
    return await body.read(request, context.settings.max_body)


def _answer(submitted: Submitted, document: dict[str, Any], location: str | None = None) -> Response:
    if submitted.repeated:
        return schemas.json_response(document, 200, {"idempotency-replayed": "true"})
    if submitted.returned:
        return schemas.json_response(document, 200)
    return schemas.json_response(document, 201, {"location": location} if location else None)
