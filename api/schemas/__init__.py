"""The documents that the API answers: pydantic models for the OpenAPI document, plain dicts for speed.

A page of 10,000 jobs is made by the functions here and orjson; the models only describe it, and the tests hold each
answer against its model.
"""

from api.schemas.base import (
    Answer,
    Time,
    json_response,
    list_document,
)
from api.schemas.jobs import (
    Array,
    DependencyState,
    Job,
    JobPage,
    Task,
    job_document,
    new_job_document,
)
from api.schemas.schedules import (
    NextRun,
    ScheduleList,
    ScheduleRun,
    ScheduleState,
    ScheduleSummary,
    run_document,
    schedule_document,
    summary_document,
)
from api.schemas.system import (
    Alive,
    Health,
    Queue,
    QueueList,
    Reaper,
    Server,
    Worker,
    WorkerList,
    queue_document,
    worker_document,
)
from api.schemas.workflows import (
    Workflow,
    WorkflowStatus,
    new_workflow_document,
    workflow_document,
    workflow_status,
)

__all__ = [
    "Alive",
    "Answer",
    "Array",
    "DependencyState",
    "Health",
    "Job",
    "JobPage",
    "NextRun",
    "Queue",
    "QueueList",
    "Reaper",
    "ScheduleList",
    "ScheduleRun",
    "ScheduleState",
    "ScheduleSummary",
    "Server",
    "Task",
    "Time",
    "Worker",
    "WorkerList",
    "Workflow",
    "WorkflowStatus",
    "job_document",
    "json_response",
    "list_document",
    "new_job_document",
    "new_workflow_document",
    "queue_document",
    "run_document",
    "schedule_document",
    "summary_document",
    "worker_document",
    "workflow_document",
    "workflow_status",
]
