"""Jobs as arguments of the scripts that store them, cut into calls of bounded work."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import orjson

from workron.models import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_PRIORITY,
    DEFAULT_QUEUE,
    Dependency,
    NewJob,
    When,
)
from workron.scripts import Arg

MAX_JOBS: Final = 400
MAX_EDGES: Final = 200
MAX_BYTES: Final = 1_000_000
MAX_QUEUES: Final = MAX_JOBS
"""Queues whose room is asked for in one call: then there are at least as many chunks as such calls."""


def _depends_on(edges: Sequence[Dependency]) -> str:
    return " ".join(edge.job if edge.when is When.DONE else f"{edge.job}:{edge.when}" for edge in edges)


def _timers(job: NewJob) -> Iterator[str]:
    for name, moment in (("deadline", job.deadline), ("expires", job.expires)):
        if moment is not None and moment.after_ms is not None:
            yield from (f"{name}_ms", str(moment.after_ms))
        elif moment is not None:
            yield from (f"{name}_at", str(moment.at_ms))


def fields(job: NewJob) -> list[str | bytes]:
    """Name, value, … of the job's hash; fields with default values are left out."""
    parts: list[str | bytes] = []
    if job.command is not None:
        parts += ("command", job.command)
    if job.argv is not None:
        parts += ("argv", orjson.dumps(list(job.argv)))
    if job.name is not None:
        parts += ("name", job.name)
    if job.queue != DEFAULT_QUEUE:
        parts += ("queue", job.queue)
    if job.priority != DEFAULT_PRIORITY:
        parts += ("priority", str(job.priority))
    if job.max_attempts != DEFAULT_MAX_ATTEMPTS:
        parts += ("max_attempts", str(job.max_attempts))
    if job.timeout_ms is not None:
        parts += ("timeout_ms", str(job.timeout_ms))
    holds = job.holds
    if job.deadline is not None or job.expires is not None:
        parts += _timers(job)
        holds += "t"
    if job.env:
        parts += ("env", orjson.dumps(dict(job.env)))
    if job.cwd is not None:
        parts += ("cwd", job.cwd)
    if job.more:
        parts += ("more", orjson.dumps(dict(job.more)))
    if holds:
        parts += ("holds", holds)
    if job.depends_on:
        parts += ("depends_on", _depends_on(job.depends_on))
    return parts


@dataclass(slots=True)
class Chunk:
    """Jobs as arguments of one call, and how much work they mean."""

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
    """Cut jobs into calls of bounded work; a job with many edges brings the rest of them in later chunks."""
    chunk = Chunk()
    for job in jobs:
        job_fields, edges = fields(job), job.depends_on
        size = 60 + sum(map(len, job_fields))
        first = True
        while first or edges:
            if not chunk.fits(size):
                yield chunk
                chunk = Chunk()
            now, edges = edges[: MAX_EDGES - chunk.edges], edges[MAX_EDGES - chunk.edges :]
            head = (job.id, (job.run_at_ms or 0) if first else 0, (job.delay_ms or 0) if first else 0)
            chunk.add(head, job_fields if first else (), now, size if first else 60)
            first = False
    yield chunk


def reservations(jobs: Sequence[NewJob]) -> Iterator[str]:
    """Yield the room that a large submission needs, `queue number queue number …`, for its first chunks."""
    needs = list(Counter(job.queue for job in jobs).items())
    for start in range(0, len(needs), MAX_QUEUES):
        yield " ".join(f"{queue} {number}" for queue, number in needs[start : start + MAX_QUEUES])
