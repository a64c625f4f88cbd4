"""The plain fields of a job as the API returns them: written by `make generate` from workron/models/job_fields.py."""

from typing import Any, TypedDict


class PlainJobDoc(TypedDict):
    """The plain fields of a job."""

    command: str | None
    argv: list[str] | None
    timeout: float | None
    env: dict[str, str]
    cwd: str | None
    name: str | None
    tags: list[str]
    metadata: dict[str, Any]
    queue: str
    priority: int
    max_attempts: int
    run: int
    reason: str | None
    result: Any
    attempts: int
    run_at: str | None
    started_at: str | None
    finished_at: str | None
    cancel_requested_at: str | None
    worker: str | None
    exit_code: int | None
    signal: int | None
    error: str | None
    workflow: str | None
    final: bool
