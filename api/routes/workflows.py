"""Workflows: read and cancel them."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from api import problems, schemas
from api.auth import queue_rights
from api.auth.callers import READ, SUBMIT, caller_of
from api.context import context_of
from api.http.paths import WorkflowId
from api.operations import Operations

router = Operations("workflows")

MOST_JOBS: Final = 1000


@router.operation("GET /workflows/{workflow_id}", READ, schemas.Workflow)
async def get_workflow(request: Request, workflow_id: WorkflowId) -> Response:
    """Return a workflow with its first 1,000 jobs."""
    return schemas.json_response(await workflow_answer(request, workflow_id))


@router.operation("POST /workflows/{workflow_id}/cancel", SUBMIT, schemas.Workflow, problems.CONFLICT)
async def cancel_workflow(request: Request, workflow_id: WorkflowId) -> Response:
    """Cancel all unfinished jobs of a workflow except its final one, which then runs."""
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
