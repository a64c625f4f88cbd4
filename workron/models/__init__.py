"""The nouns of Workron: what the store takes and gives. Plain frozen values, no Redis, no HTTP.

Times are integers in milliseconds since the epoch on the Redis server's clock (`…_at_ms`), lengths of time are
milliseconds (`…_ms`). `api/schemas/` turns them into RFC 3339 and seconds.
"""

from workron.models.attempts import (
    OUTPUT_HEAD,
    OUTPUT_TAIL,
    Beat,
    Claim,
    Claimed,
    ClaimRequest,
    Finished,
    Outcome,
    Output,
    OutputPatch,
    Result,
    Unfenced,
    Verdict,
)
from workron.models.jobs import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_PRIORITY,
    DEFAULT_QUEUE,
    PRIORITIES,
    TERMINAL,
    Cancelled,
    Dependency,
    DependencyState,
    Idempotency,
    Job,
    JobPage,
    NewJob,
    Reason,
    Status,
    Submitted,
    When,
)
from workron.models.system import (
    QueueState,
    WorkerInfo,
    Workflow,
)

__all__ = [
    "DEFAULT_MAX_ATTEMPTS",
    "DEFAULT_PRIORITY",
    "DEFAULT_QUEUE",
    "OUTPUT_HEAD",
    "OUTPUT_TAIL",
    "PRIORITIES",
    "TERMINAL",
    "Beat",
    "Cancelled",
    "Claim",
    "ClaimRequest",
    "Claimed",
    "Dependency",
    "DependencyState",
    "Finished",
    "Idempotency",
    "Job",
    "JobPage",
    "NewJob",
    "Outcome",
    "Output",
    "OutputPatch",
    "QueueState",
    "Reason",
    "Result",
    "Status",
    "Submitted",
    "Unfenced",
    "Verdict",
    "When",
    "WorkerInfo",
    "Workflow",
]
