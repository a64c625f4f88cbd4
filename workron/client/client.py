"""A client for the HTTP API: small, typed and synchronous.

    with Client("http://127.0.0.1:8080", key) as client:
        job = client.submit({"command": "make report"})
        job = client.job(job["id"], wait_s=30)

A request is retried while the API is unreachable or answers 503, for up to `patience_s`; while a queue is full,
for up to `room_patience_s`, by default the same. This is safe: every submission has an Idempotency-Key, a repeated
cancel changes nothing, a retry names its run.
"""

import json
import math
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, cast
from urllib.parse import quote

from workron.client.connection import ANSWER_S
from workron.client.documents import (
    ActionDoc,
    AuditDoc,
    ExplanationDoc,
    HealthDoc,
    JobDoc,
    KeyDoc,
    MadeKeyDoc,
    QueueDoc,
    ScheduleDoc,
    ScheduleRunDoc,
    ScheduleSummaryDoc,
    WorkerDoc,
    WorkflowDoc,
)
from workron.client.transport import PATIENCE_S, Transport
from workron.errors import ApiProblem, InvalidRequest, NotFound
from workron.names import NAME_IN_WORDS

if TYPE_CHECKING:
    from workron.models.output_stream import Event

PAGE: Final = 1000


class Client:
    """A client of one API server. `notify` is called with one line when an outage begins and when it ends."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        patience_s: float = PATIENCE_S,
        room_patience_s: float | None = None,
        notify: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._transport = Transport(
            url,
            key,
            patience_s=patience_s,
            room_patience_s=patience_s if room_patience_s is None else room_patience_s,
            notify=notify,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._transport.close()

    def persist(self, patience_s: float = math.inf) -> None:
        """From now on retry during outages of this duration, unless the client never retries."""
        if self._transport.patience_s:
            self._transport.patience_s = patience_s

    def submit(self, job: Mapping[str, Any], *, idempotency_key: str | None = None) -> JobDoc:
        """Submit one job; the body is that of `POST /jobs`."""
        return cast(JobDoc, self._submit("/jobs", job, idempotency_key))

    def submit_bulk(self, jobs: Sequence[Mapping[str, Any]], *, idempotency_key: str | None = None) -> list[JobDoc]:
        """Submit independent jobs, all or nothing."""
        return cast(list[JobDoc], self._submit("/jobs/bulk", {"jobs": jobs}, idempotency_key)["data"])

    def submit_workflow(self, workflow: Mapping[str, Any], *, idempotency_key: str | None = None) -> WorkflowDoc:
        """Submit a workflow, all or nothing; the body is that of `POST /workflows`."""
        return cast(WorkflowDoc, self._submit("/workflows", workflow, idempotency_key))

    def job(self, job_id: str, *, wait_s: float = 0) -> JobDoc:
        """Return the job; with `wait_s`, once it has ended or after that time."""
        params = {"wait": f"{wait_s:.3f}"} if wait_s else {}
        return cast(JobDoc, self._get(_path("jobs", job_id), params, timeout_s=wait_s + ANSWER_S))

    def jobs(self, *, limit: int | None = None, **filters: str | Sequence[str] | None) -> Iterator[JobDoc]:
        """Yield jobs, newest first, all or at most `limit`.

        Filters: status, queue, name, workflow, array, tag, metadata.KEY. A page may be empty although more follow: the
        API checks a limited number of jobs per page.
        """
        params = {name: value for name, value in filters.items() if value is not None}
        return self._pages("/jobs", params, limit)

    def explain(self, job_id: str) -> ExplanationDoc:
        """Return why the job has its status."""
        return cast(ExplanationDoc, self._get(_path("jobs", job_id, "explain")))

    def cancel(self, job_id: str, tasks: str | None = None, *, cascade: bool = False) -> JobDoc:
        """Cancel the current run of the job, immediately or by stopping its command; or only some tasks of an array.

        `cascade`: also cancel all jobs that depend on it.

        The request names the run: a delayed or repeated request never affects a later one.
        """
        body: dict[str, Any] = {"tasks": tasks} if tasks else {"run": self.job(job_id)["run"]}
        body |= {"cascade": True} if cascade else {}
        return cast(JobDoc, self._post(_path("jobs", job_id, "cancel"), body))

    def retry(self, job_id: str, tasks: str | None = None) -> JobDoc:
        """Start a new run of an ended job, or of some of an array's tasks."""
        if tasks:
            return cast(JobDoc, self._post(_path("jobs", job_id, "retry"), {"tasks": tasks}))
        run = self.job(job_id)["run"]
        try:
            return cast(JobDoc, self._post(_path("jobs", job_id, "retry"), {"run": run}))
        except ApiProblem as problem:
            # The answer to an earlier try may have been lost on the way: then the run has grown.
            if problem.status == 409 and (job := self.job(job_id))["run"] > run:
                return job
            raise

    def delete(self, job_id: str) -> None:
        """Delete a job that has ended; raise ApiProblem with status 404 also if a repeat finds it deleted."""
        self._transport.document("DELETE", _path("jobs", job_id))

    def order_action(self, body: Mapping[str, Any], *, idempotency_key: str | None = None) -> ActionDoc:
        """Start a bulk action; the body is that of `POST /jobs/actions`."""
        return cast(ActionDoc, self._submit("/jobs/actions", body, idempotency_key))

    def actions(self) -> list[ActionDoc]:
        """Return the latest bulk actions, newest first."""
        return cast(list[ActionDoc], self._get("/jobs/actions")["data"])

    def action(self, action_id: str) -> ActionDoc:
        """Return a bulk action with its progress."""
        return cast(ActionDoc, self._get(_path("jobs/actions", action_id)))

    def abort_action(self, action_id: str) -> ActionDoc:
        """Abort a bulk action."""
        return cast(ActionDoc, self._post(_path("jobs/actions", action_id, "abort"), {}))

    def output(self, job_id: str) -> Iterator[bytes]:
        """Yield the present output of the latest attempt."""
        return self._transport.stream(_path("jobs", job_id, "output"))

    def follow_output(self, job_id: str, position: str | None = None) -> "Iterator[Event]":
        """Yield output as it is written, from the position of an event on; `0:0`: all stored output.

        Without one it begins with the latest attempt. If the last event is not the end, the stream broke off and
        can be resumed from that event's position.
        """
        params = {"follow": "true", **({"position": position} if position else {})}
        return self._transport.events(_path("jobs", job_id, "output"), params)

    def workflow(self, workflow_id: str) -> WorkflowDoc:
        """Return the workflow with the state of its jobs."""
        return cast(WorkflowDoc, self._get(_path("workflows", workflow_id)))

    def cancel_workflow(self, workflow_id: str) -> WorkflowDoc:
        """Cancel all unfinished jobs of the workflow except its final one."""
        return cast(WorkflowDoc, self._post(_path("workflows", workflow_id, "cancel"), {}))

    def add_jobs(
        self, workflow_id: str, jobs: Sequence[Mapping[str, Any]], *, idempotency_key: str | None = None
    ) -> list[JobDoc]:
        """Add jobs to a workflow, all or nothing; the body is that of `POST /workflows/{id}/jobs`."""
        path = _path("workflows", workflow_id, "jobs")
        return cast(list[JobDoc], self._submit(path, {"jobs": jobs}, idempotency_key)["data"])

    def queues(self) -> Iterator[QueueDoc]:
        """Yield all queues by name, with their counts."""
        return self._pages("/queues")

    def change_queue(self, queue: str, change: Mapping[str, Any]) -> QueueDoc:
        """Change the settings of a queue; the body is that of `PATCH /queues/{queue}`."""
        return cast(QueueDoc, self._send("PATCH", _queue_path(queue), change))

    def act_on_queue(self, action: str, queue: str) -> QueueDoc:
        """Pause or resume a queue."""
        return cast(QueueDoc, self._post(_queue_path(queue, action), {}))

    def purge_queue(self, queue: str) -> int:
        """Cancel the jobs of a queue that are ready to run; return their number."""
        cancelled = 0
        while True:
            answer = self._post(_queue_path(queue, "purge"), {})
            cancelled += int(answer["cancelled"])
            if not answer["more"]:
                return cancelled

    def delete_queue(self, queue: str) -> None:
        """Delete an empty queue."""
        self._transport.document("DELETE", _queue_path(queue))

    def put_schedule(self, name: str, schedule: Mapping[str, Any]) -> ScheduleDoc:
        """Create or replace a schedule; the body is that of `PUT /schedules/{name}`."""
        if name in ("", ".", "..") or "/" in name:
            raise InvalidRequest(f"schedule {name!r}: the name {NAME_IN_WORDS}")
        return cast(ScheduleDoc, self._send("PUT", _named_path("schedule", name), schedule))

    def schedules(self) -> Iterator[ScheduleSummaryDoc]:
        """Yield all schedules by name, without their jobs and runs."""
        return self._pages("/schedules")

    def schedule(self, name: str) -> ScheduleDoc:
        """Return a schedule with its next and its last runs."""
        return cast(ScheduleDoc, self._get(_named_path("schedule", name)))

    def delete_schedule(self, name: str) -> None:
        """Delete a schedule; jobs it has started continue."""
        self._transport.document("DELETE", _named_path("schedule", name))

    def run_schedule(self, name: str, *, idempotency_key: str | None = None) -> ScheduleRunDoc:
        """Start a run of a schedule now."""
        return cast(ScheduleRunDoc, self._submit(_named_path("schedule", name, "run"), {}, idempotency_key))

    def pause_schedule(self, name: str) -> ScheduleDoc:
        """Pause a schedule."""
        return cast(ScheduleDoc, self._post(_named_path("schedule", name, "pause"), {}))

    def resume_schedule(self, name: str) -> ScheduleDoc:
        """Resume a schedule."""
        return cast(ScheduleDoc, self._post(_named_path("schedule", name, "resume"), {}))

    def workers(self) -> list[WorkerDoc]:
        """Return all workers, including those lost within the last hour."""
        return list(self._pages("/workers"))

    def worker(self, worker_id: str) -> WorkerDoc:
        """Return a worker; raise ApiProblem with status 404 once it has stopped."""
        return cast(WorkerDoc, self._get(_named_path("worker", worker_id)))

    def drain(self, worker_id: str, *, timeout_s: float | None = None) -> WorkerDoc:
        """Drain a worker: it claims no more jobs, lets its jobs run for the timeout, by default its own, and stops."""
        body = {} if timeout_s is None else {"timeout": timeout_s}
        return cast(WorkerDoc, self._post(_named_path("worker", worker_id, "drain"), body))

    def create_key(self, body: Mapping[str, Any]) -> MadeKeyDoc:
        """Create an API key; the body is that of `POST /keys`. Names are unique, so a repeat creates no second key."""
        return cast(MadeKeyDoc, self._post("/keys", body))

    def keys(self) -> list[KeyDoc]:
        """Return all API keys, without the keys themselves."""
        return cast(list[KeyDoc], self._get("/keys")["data"])

    def revoke_key(self, key_id: str) -> None:
        """Revoke an API key; raise ApiProblem with status 404 also if a repeat finds it revoked."""
        self._transport.document("DELETE", _path("keys", key_id))

    def audit(self, *, limit: int | None = None) -> Iterator[AuditDoc]:
        """Yield the audit log, newest first, all of it or at most `limit` entries."""
        return self._pages("/audit", limit=limit)

    def health(self) -> HealthDoc:
        """Return the health of the system."""
        return cast(HealthDoc, self._get("/health"))

    def _submit(self, path: str, body: Mapping[str, Any], idempotency_key: str | None) -> Any:
        return self._post(path, body, {"Idempotency-Key": idempotency_key or uuid.uuid4().hex})

    def _get(
        self, path: str, params: Mapping[str, str | Sequence[str]] | None = None, *, timeout_s: float = ANSWER_S
    ) -> Any:
        return self._transport.document("GET", path, params=params, timeout_s=timeout_s)

    def _pages(
        self, path: str, filters: Mapping[str, str | Sequence[str]] | None = None, limit: int | None = None
    ) -> Iterator[Any]:
        """Yield the items of all pages of a list, all or at most `limit`."""
        params = {**(filters or {})}
        left = limit
        while left is None or left > 0:
            page = self._get(path, {**params, "limit": str(min(PAGE, left or PAGE))})
            yield from page["data"]
            if page["next_cursor"] is None:
                return
            params["cursor"] = page["next_cursor"]
            left = None if left is None else left - len(page["data"])

    def _post(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Any:
        return self._send("POST", path, body, headers)

    def _send(self, method: str, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Any:
        sent = {"Content-Type": "application/json", **(headers or {})}
        return self._transport.document(method, path, body=_encode(body), headers=sent)


def _encode(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        raise InvalidRequest("the request holds text that is not valid Unicode; commands must be UTF-8") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"the request can't be written as JSON: {error}") from None


def _queue_path(queue: str, action: str = "") -> str:
    return f"/queues/{quote(queue, safe='')}" + (f"/{action}" if action else "")


def _named_path(kind: str, name: str, action: str = "") -> str:
    """Return the path of a worker or a schedule; raise NotFound for a name that would be another path."""
    if not name or name in {".", ".."} or "/" in name:
        raise NotFound(kind, name)
    return f"/{kind}s/{quote(name, safe='')}" + (f"/{action}" if action else "")


def _path(kind: str, ident: str, action: str = "") -> str:
    if not ident.isalnum():
        raise NotFound(kind.rpartition("/")[2].removesuffix("s"), ident)
    return f"/{kind}/{quote(ident)}" + (f"/{action}" if action else "")
