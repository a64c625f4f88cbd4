"""Jobs as arguments of the scripts that store them, cut into calls of bounded work."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from workron.models import Dependency, NewArray, NewJob, OnFailure
from workron.models.field_code import function
from workron.models.job_fields import DESCRIBED, JobField, Kind
from workron.redis import formats
from workron.redis.formats import Hook
from workron.redis.scripts import Arg

MAX_JOBS: Final = 400
MAX_EDGES: Final = 200
MAX_BYTES: Final = 1_000_000
MAX_QUEUES: Final = MAX_JOBS
"""Queues whose room is reserved in one call: then there are at least as many chunks as such calls."""


def _timers(job: NewJob) -> Iterator[str]:
    for name, moment in (("deadline", job.deadline), ("expires", job.expires)):
        if moment is not None and moment.after_ms is not None:
            yield from (f"{name}_ms", str(moment.after_ms))
        elif moment is not None:
            yield from (f"{name}_at", str(moment.at_ms))


def _compose(job: NewJob, parts: list[str | bytes]) -> None:
    """Add the fields that are more than one plain value."""
    if job.array is not None:
        parts += _array(job.array, job.depends_on)
    if job.concurrency is not None:
        parts += ("concurrency", job.concurrency.key, "concurrency_limit", str(job.concurrency.limit))
    if job.unique is not None:
        parts += ("unique", formats.unique(job.unique))
    if job.retry is not None or job.retry_on_exit or job.no_retry_on_exit:
        parts += ("retry", formats.retry(job.retry, job.retry_on_exit, job.no_retry_on_exit))
    if job.deadline is not None or job.expires is not None:
        parts += _timers(job)
    if job.key is not None:
        parts += ("key", job.key)
    if job.more or job.depends_on:
        parts += ("more", _more(job))
    if job.final:
        parts += ("final", "1")
    if hooks := _hooks(job):
        parts += ("hooks", hooks)
    if job.depends_on:
        parts += ("depends_on", formats.edges(job.depends_on))


def _json(value: Any) -> bytes:
    return orjson.dumps(value, default=lambda given: dict(given) if isinstance(given, Mapping) else list(given))


_WRITTEN: Final[dict[Kind, str]] = {
    "whole": "str({})",
    "duration": "str({})",
    "time": "str({})",
    "flag": "'1'",
    "texts": "json({})",
    "variables": "json({})",
    "object": "json({})",
    "json": "json({})",
}
"""What is stored instead of the value."""


def _line(field: JobField) -> str:
    """Return the line that stores a plain field unless it has its default value."""
    value = f"job.{field.name}"
    given = value if field.default is not None and not field.default else f"{value} != {field.default!r}"
    if field.default is None:
        given = f"{value} is not None"
    return f"if {given}: parts += ({field.stored!r}, {_WRITTEN.get(field.kind, '{}').format(value)})"


def _array(array: NewArray, depends_on: Sequence[Dependency]) -> Iterator[str]:
    yield from ("array_first", array.first, "array_size", str(array.size))
    if array.values is not None:
        yield from ("array_values", "1")
    if array.max_parallel is not None:
        yield from ("array_parallel", str(array.max_parallel))
    for edge in depends_on:
        if edge.matching:
            yield from ("array_follows", edge.job, "array_follows_when", edge.when)


def _hooks(job: NewJob) -> str:
    """Return the names of the job's lifecycle hooks."""
    hooks: list[str] = []
    if job.deadline is not None or job.expires is not None:
        hooks.append(Hook.TIMERS)
    if job.array is not None:
        hooks.append(Hook.ARRAY)
    if job.concurrency is not None:
        hooks.append(Hook.CONCURRENCY)
    if job.unique is not None:
        hooks.append(Hook.UNIQUE)
    if job.watched:
        hooks.append(Hook.WORKFLOW)
    return " ".join(hooks)


def new_workflow(name: str, on_failure: OnFailure, *, watched: bool, key: str | None) -> bytes:
    """Return the fields of a new workflow's hash, as JSON."""
    fields = {"name": name}
    if on_failure is not OnFailure.CONTINUE:
        fields["on_failure"] = on_failure
    if watched:
        fields["watched"] = "1"
    if key is not None:
        fields["key"] = key
    return orjson.dumps(fields)


def _more(job: NewJob) -> bytes:
    """Return the data only for the worker; `parents`: it has to read the results of the dependencies."""
    return orjson.dumps({**job.more, "parents": True} if job.depends_on else dict(job.more))


_COMPOSED: Final = {field.name for field in dataclasses.fields(NewJob)} - {field.name for field in DESCRIBED}
_is_composed: Final = " or ".join(f"job.{name}" for name in sorted(_COMPOSED - {"id", "delay_ms", "run_at_ms"}))

fields: Final[Callable[[NewJob], list[str | bytes]]] = function(
    "job",
    ["parts = []", *map(_line, DESCRIBED), f"if {_is_composed}: compose(job, parts)", "return parts"],
    json=_json,
    compose=_compose,
)
"""Return name, value, … of the job's hash, without fields with default values."""


@dataclass(slots=True)
class Chunk:
    """Jobs as arguments of one call, and their cost."""

    args: list[Arg] = field(default_factory=list)
    jobs: int = 0
    edges: int = 0
    bytes: int = 0

    def add(self, head: Sequence[Arg], job_fields: Sequence[Arg], edges: Sequence[Dependency], size: int) -> None:
        self.args += [*head, len(job_fields) // 2, *job_fields, len(edges)]
        for edge in edges:
            self.args += [edge.job, edge.when.value]
        self.jobs += 1
        self.edges += len(edges)
        self.bytes += size + 30 * len(edges)

    def fits(self, size: int) -> bool:
        return self.jobs < MAX_JOBS and self.edges < MAX_EDGES and (not self.jobs or self.bytes + size <= MAX_BYTES)


def chunks(jobs: Sequence[NewJob]) -> Iterator[Chunk]:
    """Split jobs into calls of bounded work; a job with many edges has the rest of them in later chunks."""
    chunk = Chunk()
    for job in jobs:
        job_fields, edges = fields(job), job.depends_on
        if job.array:
            edges = [edge for edge in edges if not edge.matching]
        size = 60 + sum(map(len, job_fields))
        first = True
        while first or edges:
            if not chunk.fits(size):
                yield chunk
                chunk = Chunk()
            now, edges = edges[: MAX_EDGES - chunk.edges], edges[MAX_EDGES - chunk.edges :]
            head = (job.id, (job.run_at_ms or 0) if first else 0, (job.delay_ms or 0) if first else 0)
            chunk.add(head, job_fields if first else (), now, size if first else 60)
            if first and job.concurrency is not None:
                chunk.edges += 2  # as much work; 100 different keys can be visited in one call (lib/concurrency.lua)
            first = False
    yield chunk


def reservations(jobs: Sequence[NewJob]) -> Iterator[str]:
    """Yield the room that a large submission needs, `queue number queue number …`, for its first chunks."""
    room: Counter[str] = Counter()
    for job in jobs:
        room[job.queue] += 1 if job.array is None else 1 + job.array.size
    needs = list(room.items())
    for start in range(0, len(needs), MAX_QUEUES):
        yield formats.rooms(needs[start : start + MAX_QUEUES])
