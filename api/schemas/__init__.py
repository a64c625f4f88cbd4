"""The documents that the API returns: pydantic models for the OpenAPI document, plain dicts for speed.

A page of 10,000 jobs is made by the functions here and orjson; the models only describe it, and the tests hold each
answer against its model.
"""

from api.schemas.access import ApiKey, ApiKeyList, Entry, EntryPage, MadeKey, entry_document, key_document
from api.schemas.actions import (
    ActionList,
    BulkAction,
    action_document,
)
from api.schemas.base import (
    Answer,
    Time,
    json_response,
    list_document,
)
from api.schemas.jobs import (
    Array,
    DependencyState,
    Explanation,
    Job,
    JobPage,
    Task,
    explanation_document,
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
    Purged,
    Queue,
    QueueList,
    Rate,
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
    "ActionList",
    "Alive",
    "Answer",
    "ApiKey",
    "ApiKeyList",
    "Array",
    "BulkAction",
    "DependencyState",
    "Entry",
    "EntryPage",
    "Explanation",
    "Health",
    "Job",
    "JobPage",
    "MadeKey",
    "NextRun",
    "Purged",
    "Queue",
    "QueueList",
    "Rate",
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
    "action_document",
    "entry_document",
    "explanation_document",
    "job_document",
    "json_response",
    "key_document",
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
