"""Submissions: what fits one call is stored by `submit`, larger ones are staged in chunks, opened, and admitted.

No call does more than bounded work (`MAX_JOBS`, `MAX_EDGES`, `MAX_BYTES`), whatever the size of the submission. Until
`open`, nothing of a staged submission is visible; if its submitter dies, the reaper aborts it. After `open`, the reaper
would admit the rest.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import orjson

from workron import ids
from workron.errors import IdempotencyConflict, StoreFull, StoreUnavailable, UnknownDependency
from workron.models import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_PRIORITY,
    DEFAULT_QUEUE,
    Dependency,
    Idempotency,
    NewJob,
    Submitted,
    When,
)
from workron.scripts import Arg, Scripts

MAX_JOBS: Final = 400
MAX_EDGES: Final = 200
MAX_BYTES: Final = 1_000_000
IDEMPOTENCY_MS: Final = 24 * 3600 * 1000
ABANDONED_MS: Final = 60_000
"""A staged submission that got no chunk for so long has lost its submitter."""


def _depends_on(edges: Sequence[Dependency]) -> str:
    return " ".join(edge.job if edge.when is When.DONE else f"{edge.job}:{edge.when}" for edge in edges)


def fields(job: NewJob) -> list[Arg]:
    """Name, value, … of the job's hash; fields with default values are left out."""
    values: dict[str, Arg | None] = {
        "command": job.command,
        "argv": None if job.argv is None else orjson.dumps(list(job.argv)),
        "name": job.name,
        "queue": None if job.queue == DEFAULT_QUEUE else job.queue,
        "priority": None if job.priority == DEFAULT_PRIORITY else job.priority,
        "max_attempts": None if job.max_attempts == DEFAULT_MAX_ATTEMPTS else job.max_attempts,
        "timeout_ms": job.timeout_ms,
        "env": orjson.dumps(dict(job.env)) if job.env else None,
        "cwd": job.cwd,
        "depends_on": _depends_on(job.depends_on) or None,
    }
    return [part for name, value in values.items() if value is not None for part in (name, value)]


@dataclass(slots=True)
class Chunk:
    """The argument list of one call, and how much work it means."""

    args: list[Arg]
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


def chunks(jobs: Sequence[NewJob]) -> Iterator[list[Arg]]:
    """Cut jobs into calls of bounded work; a job with many edges brings the rest of them in later chunks."""
    chunk = Chunk([])
    for job in jobs:
        job_fields, edges = fields(job), job.depends_on
        size = 60 + sum(len(part) if isinstance(part, str | bytes) else 8 for part in job_fields)
        first = True
        while first or edges:
            if not chunk.fits(size):
                yield chunk.args
                chunk = Chunk([])
            now, edges = edges[: MAX_EDGES - chunk.edges], edges[MAX_EDGES - chunk.edges :]
            head = (job.id, (job.run_at_ms or 0) if first else 0, (job.delay_ms or 0) if first else 0)
            chunk.add(head, job_fields if first else (), now, size if first else 60)
            first = False
    yield chunk.args


class Submitter:
    """Stores submissions of any size, whole or not at all."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def submit(
        self, jobs: Sequence[NewJob], *, workflow: str, name: str, idempotency: Idempotency | None
    ) -> Submitted:
        """Store all jobs. Their ids are consecutive (`ids.new_ids`), parents stand before their children."""
        key = f"{idempotency.scope}:{idempotency.key}" if idempotency else ""
        fingerprint = idempotency.fingerprint if idempotency else ""
        plan = list(chunks(jobs))
        if len(plan) == 1:
            reply = await self._scripts.submit(
                key=key,
                fingerprint=fingerprint,
                ttl_ms=IDEMPOTENCY_MS,
                workflow=workflow,
                name=name,
                size=len(jobs),
                jobs=plan[0],
            )
        else:
            reply = await self._stage_and_open(plan, jobs, workflow, name, key, fingerprint)
        earlier = _judge(reply)
        return earlier or Submitted(tuple(job.id for job in jobs), workflow=workflow or None)

    async def _stage_and_open(
        self, plan: Sequence[list[Arg]], jobs: Sequence[NewJob], workflow: str, name: str, key: str, fingerprint: str
    ) -> Any:
        batch = jobs[0].id  # the same again if the submission is repeated
        try:
            for number, args in enumerate(plan):
                reply = await self._scripts.stage(
                    batch=batch,
                    chunk=number,
                    chunks=len(plan),
                    workflow=workflow,
                    key=key,
                    fingerprint=fingerprint,
                    jobs=args,
                )
                if reply[0] != b"STAGED":
                    break
            else:
                reply = await self._scripts.open(
                    batch=batch,
                    workflow=workflow,
                    name=name,
                    key=key,
                    fingerprint=fingerprint,
                    ttl_ms=IDEMPOTENCY_MS,
                    first=jobs[0].id,
                    size=len(jobs),
                )
        except BaseException:
            await self.abort_quietly(batch)
            raise
        if reply[0] in (b"OPEN", b"STORED"):
            await self.admit_quietly(batch)
        else:
            await self.abort_quietly(batch)
        return reply

    async def abort_quietly(self, batch: str) -> None:
        """Delete a submission that was not opened; if Redis is away, the reaper does it later."""
        with suppress(StoreUnavailable):
            while (await self._scripts.abort(batch, 0, MAX_JOBS))[0] == b"MORE":
                pass

    async def admit_quietly(self, batch: str) -> None:
        """Put the jobs of an open submission to work; if Redis goes away, the reaper goes on."""
        with suppress(StoreUnavailable):
            await self.admit(batch)

    async def admit(self, batch: str) -> bool:
        """Admit all jobs of an open submission; returns False if it is not open."""
        while True:
            reply = await self._scripts.admit(batch, MAX_JOBS)
            if reply[0] != b"MORE":
                return bool(reply[0] == b"ADMITTED")

    async def tidy(self, batches: Sequence[str]) -> int:
        """Finish what submitters left behind: admit what is open, abort what is abandoned; returns how many."""
        tidied = 0
        for batch in batches:
            if await self.admit(batch):
                tidied += 1
                continue
            while (reply := await self._scripts.abort(batch, ABANDONED_MS, MAX_JOBS))[0] == b"MORE":
                pass
            tidied += reply[0] == b"ABORTED"
        return tidied


def _judge(reply: Any) -> Submitted | None:
    """Turn the reply of a submission into None (stored), the earlier submission, or the error it means."""
    match reply:
        case [b"STORED" | b"OPEN"]:
            return None
        case [b"REPEATED", first, size, workflow]:
            earlier = tuple(ids.ids_from(first.decode(), int(size)))
            return Submitted(earlier, repeated=True, workflow=workflow.decode() or None)
        case [b"MISMATCH"]:
            raise IdempotencyConflict("this Idempotency-Key was used before with another request body")
        case [b"UNKNOWN", *unknown]:
            raise UnknownDependency(list(dict.fromkeys(one.decode() for one in unknown)))
        case [b"FULL"]:
            raise StoreFull("Redis has no memory left for new work", retry_after_s=5.0)
        case [b"CLOSED" | b"INCOMPLETE"]:
            raise StoreUnavailable("the submission took too long and was given up; nothing of it was stored")
    raise AssertionError(f"unknown reply to a submission: {reply!r}")
