"""Workflows: read and cancel them."""

from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from api import openapi, problems, schemas
from api.auth import queue_rights
from api.auth.callers import READ, SUBMIT, ScopedRoute, caller_of, needs
from api.context import context_of
from workron import ids
from workron.errors import NotFound

router = APIRouter(route_class=ScopedRoute, tags=["look"])

MOST_JOBS: Final = 1000


@router.get(
    "/workflows/{workflow_id}",
    operation_id="get_workflow",
    response_model=schemas.Workflow,
    responses=openapi.answers({}, problems.NOT_FOUND, problems.STORE_UNAVAILABLE),
    openapi_extra=needs(READ),
)
async def get_workflow(request: Request, workflow_id: str) -> Response:
    """Return a workflow with its first 1,000 jobs."""
    if not ids.is_id(workflow_id):
        raise NotFound("workflow", workflow_id)
    return schemas.json_response(await workflow_answer(request, workflow_id))


@router.post(
    "/workflows/{workflow_id}/cancel",
    operation_id="cancel_workflow",
    response_model=schemas.Workflow,
    responses=openapi.answers({}, problems.NOT_FOUND, problems.CONFLICT, problems.STORE_UNAVAILABLE),
    openapi_extra=needs(SUBMIT),
)
async def cancel_workflow(request: Request, workflow_id: str) -> Response:
    """Cancel all unfinished jobs of a workflow except its final one, which then runs."""
    if not ids.is_id(workflow_id):
        raise NotFound("workflow", workflow_id)
    await queue_rights.see_workflow(request, context_of(request).store, workflow_id)
    await context_of(request).store.cancel_workflow(workflow_id)
    return schemas.json_response(await workflow_answer(request, workflow_id))


async def workflow_answer(request: Request, workflow_id: str) -> dict[str, Any]:
    """Return the document of a workflow with its first jobs, limited to the caller's queues."""
    store = context_of(request).store
    await queue_rights.see_workflow(request, store, workflow_id)
    workflow = await store.workflow(workflow_id)
    jobs = await store.workflow_jobs(workflow_id, MOST_JOBS)
    return schemas.workflow_document(workflow, [job for job in jobs if caller_of(request).sees(job.queue)])
