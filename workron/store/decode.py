"""Converts Redis' replies to the types of `models`."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import orjson

from workron.models import (
    Array,
    Claim,
    Concurrency,
    Dependency,
    DependencyState,
    Job,
    Parent,
    QueueState,
    Rate,
    Status,
    Task,
    Together,
    WorkerInfo,
)
from workron.models.job_fields import EXECUTION, STORED, JobField, Kind
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
    return Task(fields["array"].decode(), int(fields["index"]), value)


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
    cancelled_with = text(fields.get("cancelled_with"))
    dependencies = tuple(
        DependencyState(edge.job, edge.when, parents.get(edge.job), edge.matching) for edge in edges(fields)
    )
    retry = text(fields.get("retry"))
    policy, retry_on_exit, no_retry_on_exit = _ANY if retry is None else formats.read_retry(retry)
    return Job(
        id=job_id,
        status=Status(fields["status"].decode()),
        created_at_ms=int(fields["created_at"]),
        array=array(fields, about_array),
        task=task(fields, value),
        progress=text(fields.get("progress")),
        concurrency=concurrency(fields),
        unique=formats.read_unique(text(fields["unique"]) or "") if "unique" in fields else None,
        retry=policy,
        retry_on_exit=retry_on_exit,
        no_retry_on_exit=no_retry_on_exit,
        deadline_at_ms=timer(fields, "deadline"),
        expires_at_ms=timer(fields, "expires"),
        last_heartbeat_at_ms=beat.at_ms if (beat := formats.read_heartbeat(heartbeat)) else None,
        dependencies=dependencies,
        dependency_count=number(fields.get("dependency_count")) or len(dependencies),
        caused_by=text(fields.get("caused_by")),
        cancelled_with=Together(cancelled_with) if cancelled_with else None,
        **_plain(fields),
    )


def _plain(fields: Row) -> dict[str, Any]:
    """Return the plain fields that are stored, by the names of their attributes; the others have their defaults."""
    return {_NAMES[stored]: _READERS[stored](value) for stored, value in fields.items() if stored in _READERS}


def plain(fields: Row, name: str) -> Any:
    """Return one plain field by its name."""
    field = _FIELDS[name]
    return _READERS[field.stored](fields[field.stored]) if field.stored in fields else field.default


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
    """A claim of the scripts: {id, fence, attempt, queue, more}, then the fields of `EXECUTION`."""
    job_id, fence, attempt, queue, more, *values = reply
    return Claim(
        id=job_id.decode(),
        fence=int(fence),
        attempt=int(attempt),
        lease_ms=lease_ms,
        queue=queue.decode(),
        more=_object(more) if more else {},
        **{name: read(value) for (name, read), value in zip(_CLAIMED, values, strict=True) if value is not None},
    )


def _text(stored: bytes) -> str:
    return stored.decode("utf-8", "replace")


def _object(stored: bytes) -> dict[str, Any]:
    found = orjson.loads(stored)
    if not isinstance(found, dict):
        raise TypeError(f"{found!r:.100} is no object")
    return found


def _variables(stored: bytes) -> dict[str, str]:
    found = _object(stored)
    _check_texts([*found.values()])
    return found


def _texts(stored: bytes) -> tuple[str, ...]:
    return tuple(_check_texts(orjson.loads(stored)))


def _list(stored: bytes) -> tuple[Any, ...]:
    return tuple(orjson.loads(stored))


def _check_texts(found: Any) -> list[str]:
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise TypeError(f"{found!r:.100} is no list of texts")
    return found


def _reader(field: JobField) -> Callable[[bytes], Any]:
    if (members := field.members) is not None:
        return lambda value: members(value.decode()) if value else field.default
    return _READ[field.kind]


_READ: Final[Mapping[Kind, Callable[[bytes], Any]]] = {
    "text": _text,
    "whole": int,
    "duration": int,
    "time": int,
    "flag": bool,
    "texts": _list,
    "variables": orjson.loads,
    "object": orjson.loads,
    "json": orjson.loads,
}
_CHECKED: Final[Mapping[Kind, Callable[[bytes], Any]]] = {"texts": _texts, "variables": _variables}
"""For claims: a job with damaged data is shown, but it does not run."""
_READERS: Final = {field.stored: _reader(field) for field in STORED}
_FIELDS: Final = {field.name: field for field in STORED}
_NAMES: Final = {field.stored: field.name for field in STORED}
_CLAIMED: Final = [(field.name, _CHECKED.get(field.kind, _READERS[field.stored])) for field in EXECUTION]


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
