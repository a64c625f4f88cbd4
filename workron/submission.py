"""Submissions: what fits one call is stored by `submit`, larger ones are staged in chunks, opened, and admitted.

No call does more than bounded work (`MAX_JOBS`, `MAX_EDGES`, `MAX_BYTES`), whatever the size of the submission. Until
`open`, nothing of a staged submission is visible; if its submitter dies, the reaper aborts it. After `open`, the reaper
would admit the rest.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from workron import ids
from workron.errors import (
    IdempotencyConflict,
    InvalidRequest,
    StoreBroken,
    StoreFull,
    StoreUnavailable,
    UnknownDependency,
)
from workron.models import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_PRIORITY,
    DEFAULT_QUEUE,
    Dependency,
    Idempotency,
    Job,
    NewJob,
    Status,
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
        size = 60 + sum(len(part) if isinstance(part, str | bytes) else 8 for part in job_fields)
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


class Submitter:
    """Stores submissions of any size, whole or not at all.

    Small ones that come while a call is under way go with the next one, together: the latency of one call, the
    throughput of many.
    """

    def __init__(self, scripts: Scripts, missing: Callable[[Sequence[str]], Awaitable[list[str]]]) -> None:
        self._scripts = scripts
        self._missing = missing
        self._waiting: deque[tuple[Chunk, Sequence[Arg], asyncio.Future[Any]]] = deque()
        self._calling: asyncio.Task[None] | None = None

    async def submit(
        self, jobs: Sequence[NewJob], *, workflow: str, name: str, idempotency: Idempotency | None
    ) -> Submitted:
        """Store all jobs. Their ids are consecutive (`ids.new_ids`), parents stand before their children."""
        for job in jobs:
            if len({edge.job for edge in job.depends_on}) < len(job.depends_on):
                raise InvalidRequest("depends_on names a job twice", field="depends_on")
        key = f"{idempotency.scope}:{idempotency.key}" if idempotency else ""
        fingerprint = idempotency.fingerprint if idempotency else ""
        plan = list(chunks(jobs))
        if len(plan) == 1:
            reply = await self._store(plan[0], (key, fingerprint, workflow, name, len(jobs)))
        else:
            reply = await self._stage_and_open(plan, jobs, workflow, name, key, fingerprint)
        earlier = _judge(reply)
        return earlier or Submitted(
            tuple(job.id for job in jobs), workflow=workflow or None, stored=_as_stored(jobs, workflow, reply[1])
        )

    async def _store(self, chunk: Chunk, head: Sequence[Arg]) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((chunk, head, answer))
        if self._calling is None or self._calling.done():
            self._calling = asyncio.create_task(self._call())
        return await answer

    async def _call(self) -> None:
        """Store what waits, call by call, until nothing does."""
        while self._waiting:
            together = self._take()
            args = [arg for chunk, head, _ in together for part in (head, chunk.args) for arg in part]
            try:
                replies = _answers(await self._scripts.submit(IDEMPOTENCY_MS, args))
            except Exception as error:  # noqa: BLE001 - raised again by each who waits
                if isinstance(error, StoreUnavailable):  # the others would wait as long, one call after the other
                    together += self._waiting
                    self._waiting.clear()
                replies = [copy(error) for _ in together]
            for (_, _, answer), reply in zip(together, replies, strict=True):
                if answer.done():  # who waited for it has gone
                    continue
                if isinstance(reply, Exception):
                    answer.set_exception(reply)
                else:
                    answer.set_result(reply)

    def _take(self) -> list[tuple[Chunk, Sequence[Arg], asyncio.Future[Any]]]:
        """Take as many submissions as make one call of bounded work."""
        together = [self._waiting.popleft()]
        jobs, edges, size = together[0][0].jobs, together[0][0].edges, together[0][0].bytes
        while self._waiting:
            chunk = self._waiting[0][0]
            jobs, edges, size = jobs + chunk.jobs, edges + chunk.edges, size + chunk.bytes
            if jobs > MAX_JOBS or edges > MAX_EDGES or size > MAX_BYTES:
                break
            together.append(self._waiting.popleft())
        return together

    async def _stage_and_open(
        self, plan: Sequence[Chunk], jobs: Sequence[NewJob], workflow: str, name: str, key: str, fingerprint: str
    ) -> Any:
        own = {job.id for job in jobs}
        parents = {edge.job for job in jobs for edge in job.depends_on if edge.job not in own}
        if missing := await self._missing(list(parents)):  # found out before anything is written
            raise UnknownDependency(missing)
        batch = jobs[0].id  # the same again if the submission is repeated
        try:
            for number, chunk in enumerate(plan):
                reply = await self._scripts.stage(
                    batch=batch,
                    chunk=number,
                    workflow=workflow,
                    key=key,
                    fingerprint=fingerprint,
                    size=chunk.jobs,
                    jobs=chunk.args,
                )
                if reply[0] != b"STAGED":
                    break
            else:
                reply = await self._scripts.open(
                    batch=batch,
                    chunks=len(plan),
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
        if reply[0] not in (b"OPEN", b"STORED"):
            await self.abort_quietly(batch)
            return reply
        await self.admit_quietly(batch)
        return reply

    async def abort_quietly(self, batch: str) -> None:
        """Delete a submission that was not opened; if Redis is away, the reaper does it later."""
        with suppress(StoreUnavailable):
            while (await self._scripts.abort(batch, 0))[0] == b"MORE":
                pass

    async def admit_quietly(self, batch: str) -> None:
        """Put the jobs of an open submission to work; if Redis goes away, the reaper goes on."""
        with suppress(StoreUnavailable):
            await self.admit(batch)

    async def admit(self, batch: str) -> bool:
        """Admit all jobs of an open submission; returns False if it is not open."""
        while True:
            reply = await self._scripts.admit(batch)
            if reply[0] != b"MORE":
                return bool(reply[0] == b"ADMITTED")

    async def tidy(self, batches: Sequence[str]) -> int:
        """Finish what submitters left behind: admit what is open, abort what is abandoned; returns how many."""
        tidied = 0
        for batch in batches:
            if await self.admit(batch):
                tidied += 1
                continue
            while (reply := await self._scripts.abort(batch, ABANDONED_MS))[0] == b"MORE":
                pass
            tidied += reply[0] == b"ABORTED"
        return tidied


def _answers(reply: Any) -> Sequence[Any]:
    match reply:
        case [b"SUBMITTED", *answers]:
            return answers
    raise AssertionError(f"unknown reply to submit: {reply!r}")


def _as_stored(jobs: Sequence[NewJob], workflow: str, now_ms: int) -> tuple[Job, ...] | None:
    """Return new jobs as they stand in the store since `now_ms`; None if that is not known, or depends on others."""
    if not now_ms or any(job.depends_on for job in jobs):
        return None
    return tuple(_fresh(job, workflow or None, now_ms) for job in jobs)


def _fresh(job: NewJob, workflow: str | None, now_ms: int) -> Job:
    run_at_ms = now_ms + job.delay_ms if job.delay_ms else job.run_at_ms
    return Job(
        id=job.id,
        run=1,
        status=Status.SCHEDULED if run_at_ms and run_at_ms > now_ms else Status.PENDING,
        reason=None,
        command=job.command,
        argv=None if job.argv is None else tuple(job.argv),
        name=job.name,
        queue=job.queue,
        priority=job.priority,
        attempts=0,
        max_attempts=job.max_attempts,
        timeout_ms=job.timeout_ms,
        env=job.env,
        cwd=job.cwd,
        created_at_ms=now_ms,
        run_at_ms=run_at_ms,
        started_at_ms=None,
        finished_at_ms=None,
        last_heartbeat_at_ms=None,
        cancel_requested_at_ms=None,
        worker=None,
        exit_code=None,
        signal=None,
        error=None,
        dependencies=(),
        caused_by=None,
        workflow=workflow,
    )


def _judge(reply: Any) -> Submitted | None:
    """Turn the reply of a submission into None (stored), the earlier submission, or the error it means."""
    match reply:
        case [b"STORED" | b"OPEN", _]:
            return None
        case [b"REPEATED", first, size, workflow]:
            earlier = tuple(ids.ids_from(first.decode(), int(size)))
            return Submitted(earlier, repeated=True, workflow=workflow.decode() or None)
        case [b"MISMATCH"]:
            raise IdempotencyConflict("this Idempotency-Key was used before with another request body")
        case [b"UNKNOWN", *unknown]:
            raise UnknownDependency(list(dict.fromkeys(one.decode() for one in unknown)))
        case [b"BROKEN"]:
            raise StoreBroken("a job that this depends on is damaged in Redis; nothing was stored", retry_after_s=5.0)
        case [b"FULL"]:
            raise StoreFull("Redis has no memory left for new work", retry_after_s=5.0)
        case [b"CLOSED" | b"INCOMPLETE"]:
            raise StoreUnavailable("the submission took too long and was given up; nothing of it was stored")
    raise AssertionError(f"unknown reply to a submission: {reply!r}")
