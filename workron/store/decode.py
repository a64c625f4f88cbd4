"""Converts Redis' replies to the types of `models`."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from workron.models import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_PRIORITY,
    DEFAULT_QUEUE,
    Array,
    Claim,
    Concurrency,
    Dependency,
    DependencyState,
    Job,
    Parent,
    QueueState,
    Rate,
    Reason,
    Status,
    Task,
    Together,
    WorkerInfo,
)
from workron.models.workers import WorkerState, WorkerStatus
from workron.redis import formats

Row = Mapping[str, bytes]
_ROW_BYTES: Final = 1000
"""Size of a job's document without its values."""
_EDGE_BYTES: Final = 100
_ANY: Final = formats.read_retry(formats.retry(None, (), ()))


def text(value: bytes | None) -> str | None:
    """Return the text of a field; invalid UTF-8 (a command's output in `error`) is escaped, never an exception."""
    return None if value is None else value.decode("utf-8", "replace")


def number(value: bytes | None) -> int | None:
    return None if value is None else int(value)


def row(reply: Mapping[bytes, bytes] | Sequence[bytes]) -> Row:
    """Return the fields of an HGETALL, in either protocol version."""
    pairs = reply.items() if isinstance(reply, Mapping) else zip(reply[::2], reply[1::2], strict=True)
    return {name.decode(): value for name, value in pairs}


def parents_of(fields: Row) -> list[str]:
    """The dependencies of a job: there may be 10,000, and they are iterated more than once."""
    return formats.read_parents(text(fields.get("depends_on")) or "")


def edges(fields: Row) -> list[Dependency]:
    return formats.read_edges(text(fields.get("depends_on")) or "")


def cut(fields: Row, most: int) -> Row:
    """Return the fields with `most` dependencies and `dependency_count`; unchanged if there are no more."""
    first, count = formats.first_edges(fields.get("depends_on", b""), most)
    return fields if count <= most else {**fields, "depends_on": first, "dependency_count": b"%d" % count}


def size(fields: Row | None) -> int:
    """Return the approximate size of a job in a page, bytes."""
    if fields is None:
        return _ROW_BYTES
    edges_bytes = _EDGE_BYTES * (fields["depends_on"].count(b" ") + 1) if "depends_on" in fields else 0
    return _ROW_BYTES + edges_bytes + sum(map(len, fields.values()))


def array(fields: Row, about: Row | None) -> Array | None:
    """Return the array of a job, if it has one; `about` is the hash with its task counts."""
    if "array_size" not in fields:
        return None
    about = about or {}
    size, of_tasks = int(fields["array_size"]), counts(about)
    rest = max(0, size - int(about.get("made", b"0")) - int(about.get("skips", b"0")))
    parallel = number(fields.get("array_parallel"))
    return Array(fields["array_first"].decode(), size, parallel, of_tasks, rest)


def task(fields: Row, value: str | None = None) -> Task | None:
    """Return the array and index of a task, None for other jobs."""
    if "array" not in fields:
        return None
    job_id, _, index = fields["array"].decode().partition(" ")
    return Task(job_id, int(index), value)


def concurrency(fields: Row) -> Concurrency | None:
    if "concurrency" not in fields:
        return None
    return Concurrency(fields["concurrency"].decode(), int(fields["concurrency_limit"]))


def timer(fields: Row, name: str) -> int | None:
    """Return the time of a timer; one that counts from the submission is stored when the job is in its place."""
    at_ms, after_ms = number(fields.get(f"{name}_at")), number(fields.get(f"{name}_ms"))
    return int(fields["created_at"]) + after_ms if at_ms is None and after_ms is not None else at_ms


def job(
    job_id: str,
    fields: Row,
    heartbeat: bytes | None,
    parents: Mapping[str, Status | None],
    about_array: Row | None = None,
    value: str | None = None,
) -> Job:
    """Return a job; `heartbeat` is its key's value, `parents` their statuses."""
    reason, cancelled_with = text(fields.get("reason")), text(fields.get("cancelled_with"))
    dependencies = tuple(
        DependencyState(edge.job, edge.when, parents.get(edge.job), edge.matching) for edge in edges(fields)
    )
    argv = fields.get("argv")
    retry = text(fields.get("retry"))
    policy, retry_on_exit, no_retry_on_exit = _ANY if retry is None else formats.read_retry(retry)
    return Job(
        id=job_id,
        run=number(fields.get("run")) or 1,
        status=Status(fields["status"].decode()),
        reason=Reason(reason) if reason else None,
        command=text(fields.get("command")),
        argv=None if argv is None else tuple(orjson.loads(argv)),
        array=array(fields, about_array),
        task=task(fields, value),
        name=text(fields.get("name")),
        tags=tuple(orjson.loads(fields["tags"])) if "tags" in fields else (),
        metadata=orjson.loads(fields["metadata"]) if "metadata" in fields else {},
        result=orjson.loads(fields["result"]) if "result" in fields else None,
        progress=text(fields.get("progress")),
        queue=text(fields.get("queue")) or DEFAULT_QUEUE,
        concurrency=concurrency(fields),
        priority=number(fields.get("priority")) or DEFAULT_PRIORITY,
        unique=formats.read_unique(text(fields["unique"]) or "") if "unique" in fields else None,
        attempts=number(fields.get("attempts")) or 0,
        max_attempts=number(fields.get("max_attempts")) or DEFAULT_MAX_ATTEMPTS,
        retry=policy,
        retry_on_exit=retry_on_exit,
        no_retry_on_exit=no_retry_on_exit,
        timeout_ms=number(fields.get("timeout_ms")),
        env=orjson.loads(fields["env"]) if "env" in fields else {},
        cwd=text(fields.get("cwd")),
        created_at_ms=int(fields["created_at"]),
        run_at_ms=number(fields.get("run_at")),
        deadline_at_ms=timer(fields, "deadline"),
        expires_at_ms=timer(fields, "expires"),
        started_at_ms=number(fields.get("started_at")),
        finished_at_ms=number(fields.get("finished_at")),
        last_heartbeat_at_ms=beat.at_ms if (beat := formats.read_heartbeat(heartbeat)) else None,
        cancel_requested_at_ms=number(fields.get("cancel_requested_at")),
        worker=text(fields.get("worker")),
        exit_code=number(fields.get("exit_code")),
        signal=number(fields.get("signal")),
        error=text(fields.get("error")),
        dependencies=dependencies,
        dependency_count=number(fields.get("dependency_count")) or len(dependencies),
        caused_by=text(fields.get("caused_by")),
        cancelled_with=Together(cancelled_with) if cancelled_with else None,
        workflow=text(fields.get("workflow")),
        final="final" in fields,
    )


def parent(reply: Sequence[bytes | int]) -> Parent:
    """A row of `job_parents`: {parent, status, name, result, left_out}, empty for what it has not."""
    job_id, status, name, result = (part if isinstance(part, bytes) else b"" for part in reply[:4])
    return Parent(
        id=job_id.decode(),
        status=Status(status.decode()) if status else None,
        name=text(name) or None,
        result=orjson.loads(result) if result else None,
        left_out=bool(reply[4]),
    )


def claim(reply: Sequence[Any], lease_ms: int) -> Claim:
    """A claim of the scripts: {id, fence, attempt, queue, command, argv, timeout_ms, env, cwd, more}."""
    job_id, fence, attempt, queue, command, argv, timeout_ms, env, cwd, more = reply
    return Claim(
        id=job_id.decode(),
        fence=int(fence),
        attempt=int(attempt),
        lease_ms=lease_ms,
        command=text(command),
        argv=None if argv is None else tuple(_strings(orjson.loads(argv))),
        queue=queue.decode(),
        timeout_ms=number(timeout_ms),
        env=_strings_by_name(_object(env)) if env else {},
        cwd=text(cwd),
        more=_object(more) if more else {},
    )


def _object(stored: bytes) -> dict[str, Any]:
    found = orjson.loads(stored)
    if not isinstance(found, dict):
        raise TypeError(f"{found!r:.100} is no object")
    return found


def _strings_by_name(found: dict[str, Any]) -> dict[str, str]:
    _strings([*found.values()])
    return found


def _strings(found: Any) -> list[str]:
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise TypeError(f"{found!r:.100} is no list of strings")
    return found


_WRONG_CLOCK_MS: Final = 60_000
"""Maximum difference of a worker's start time from its first heartbeat: beyond it, its clock is wrong."""
_ABOUT: Final = frozenset(field.name for field in dataclasses.fields(WorkerInfo))


def worker(fields: Row, last_heartbeat_at_ms: int, now_ms: int) -> WorkerState:
    """Return a worker from the hash written by its heartbeats; ignore unknown fields of other versions."""
    described: dict[str, Any] = orjson.loads(fields["about"])
    described |= {name: tuple(described.get(name, ())) for name in ("queues", "jobs", "tags")}
    since_ms = int(fields.get("since", described["started_at_ms"]))
    if abs(since_ms - described["started_at_ms"]) > _WRONG_CLOCK_MS:
        described["started_at_ms"] = since_ms
    info = WorkerInfo(**{name: value for name, value in described.items() if name in _ABOUT})
    status = WorkerStatus.DRAINING if info.draining or "drain" in fields else WorkerStatus.ACTIVE
    if abs(now_ms - last_heartbeat_at_ms) > int(fields["lease_ms"]):  # one that lies ahead came with a wrong clock
        status = WorkerStatus.LOST
    return WorkerState(info, last_heartbeat_at_ms, status)


STATUSES: Final = tuple(Status)


def counts(fields: Row) -> dict[Status, int]:
    return {status: int(fields.get(status.value, b"0")) for status in STATUSES}


def queue(name: str, fields: Row, usual_max_pending: bytes | None) -> QueueState:
    """Return a queue from its hash and the default limit of waiting jobs."""
    jobs = number(fields.get("rate_jobs"))
    return QueueState(
        name,
        counts(fields),
        max_pending=number(fields.get("max_pending", usual_max_pending)),
        max_running=number(fields.get("max_running")),
        rate=None if jobs is None else Rate(jobs, int(fields["rate_per_ms"])),
        paused="paused" in fields,
    )
