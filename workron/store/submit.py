"""Submissions: `job_submit` stores small ones in one call; large ones are staged in chunks, opened, and admitted.

Each call does bounded work, for any size of the submission. Until `submission_open`, no part of a staged submission
is visible; if its submitter dies, the reaper aborts it. After that, the reaper admits the rest.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Final

from workron import ids
from workron.errors import (
    Conflict,
    GivenUp,
    IdempotencyConflict,
    InvalidRequest,
    QueueFull,
    StoreBroken,
    StoreFull,
    StoreUnavailable,
    UniqueConflict,
    UnknownDependency,
)
from workron.models import Idempotency, NewJob, Submitted
from workron.redis.scripts import Arg, Scripts, UnknownReply
from workron.runtime.async_tools import Afterwards, end
from workron.store.array_values import ArrayValues
from workron.store.arrays import Arrays
from workron.store.encode import MAX_BYTES, MAX_EDGES, MAX_JOBS, Chunk, chunks, reservations
from workron.store.reader import Reader

_WHY_CLOSED: Final = {
    b"finished": "all its jobs have ended",
    b"stopped": "it was stopped",
    b"final": "its final job has started or is about to",
}
_STAGES: Final = 2
"""Maximum of chunks sent concurrently."""
IDEMPOTENCY_MS: Final = 24 * 3600 * 1000
_SOONEST_S, _RATE_UNKNOWN_S, _LATEST_S = 1.0, 5.0, 60.0
"""Bounds of Retry-After: minimum, default if the drain rate is unknown, maximum (s)."""
ABANDONED_MS: Final = 60_000
"""A staged submission without a new chunk for this time has lost its submitter."""


class Submitter:
    """Stores submissions of any size, whole or not at all.

    Small ones that arrive during a call are sent together with the next one: the latency of one call, the
    throughput of many.
    """

    def __init__(self, scripts: Scripts, reader: Reader, arrays: Arrays) -> None:
        self._scripts = scripts
        self._arrays = arrays
        self._reader = reader
        self._waiting: deque[tuple[Chunk, Sequence[Arg], asyncio.Future[Any]]] = deque()
        self._calling = False
        self._caller: asyncio.Task[None] | None = None
        self._afterwards = Afterwards()

    async def submit(
        self,
        jobs: Sequence[NewJob],
        *,
        workflow: str,
        new: bytes,
        idempotency: Idempotency | None,
    ) -> Submitted:
        """Store all jobs. Their ids are consecutive (`ids.new_ids`), parents precede their children.

        `workflow`: its id, empty for none; `new`: fields of a new one (`encode.new_workflow`), empty if jobs are added.
        """
        for job in jobs:
            if len(job.depends_on) > 1 and len({edge.job for edge in job.depends_on}) < len(job.depends_on):
                raise InvalidRequest("depends_on names a job twice", field="depends_on")
        own = {job.id for job in jobs}
        others = {edge.job for job in jobs for edge in job.depends_on} - own
        key = f"{idempotency.scope}:{idempotency.key}" if idempotency else ""
        fingerprint = idempotency.fingerprint if idempotency else ""
        arrays = [job for job in jobs if job.array is not None]
        parts = chunks(jobs)
        first, second = next(parts), next(parts, None)
        async with ArrayValues(self._scripts, jobs, self._afterwards) as values:
            if second is None:
                head = (key, fingerprint, workflow, new, len(jobs))
                reply = await values.call(partial(self._store, first, head))
            else:
                if missing := await self._reader.missing(list(others)):  # found out before anything is written
                    raise UnknownDependency(missing)
                all_parts = chain((first, second), parts)
                reply = await self._stage_and_open(all_parts, jobs, values, workflow, new, key, fingerprint)
            earlier = _judge(reply, "job_submit" if second is None else "submission_open")
        if earlier:
            return await self._with_returned(earlier) if len(earlier.ids) > 1 else earlier
        for job in arrays:
            await self._arrays.work_on_quietly(job.id)
        stored_at_ms = None if others or arrays else reply[1] or None
        submitted = Submitted(tuple(job.id for job in jobs), workflow=workflow or None, stored_at_ms=stored_at_ms)
        if len(jobs) > 1 and [job for job in jobs if job.unique is not None]:
            return await self._with_returned(submitted)
        return submitted

    async def _with_returned(self, submitted: Submitted) -> Submitted:
        """Replace jobs that were not stored by the jobs that hold their unique keys."""
        instead = await self._reader.returned(submitted.ids[0])
        if not instead:
            return submitted
        ids = tuple(instead.get(job_id, job_id) for job_id in submitted.ids)
        return replace(submitted, ids=ids, returned=len(instead) == len(ids), stored_at_ms=None)

    async def _store(self, chunk: Chunk, head: Sequence[Arg]) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((chunk, head, answer))
        if not self._calling:
            self._calling = True
            try:
                await self._call()  # called directly: avoids the delay of a task
            finally:
                self._calling = bool(self._waiting)
                if self._waiting:
                    self._caller = asyncio.create_task(self._go_on())
        return await answer

    async def _go_on(self) -> None:
        """Store the collected submissions, call by call, until none is left."""
        try:
            while self._waiting:
                await self._call()
        finally:
            self._calling = False

    async def _call(self) -> None:
        together = self._take()
        args = [arg for chunk, head, _ in together for part in (head, chunk.args) for arg in part]
        try:
            replies = _answers(await self._scripts.job_submit(IDEMPOTENCY_MS, args))
        except Exception as error:  # noqa: BLE001 - raised again by each waiter
            if isinstance(error, StoreUnavailable):  # the others would wait as long, one call after the other
                together += self._waiting
                self._waiting.clear()
            replies = [copy(error) for _ in together]
        for (_, _, answer), reply in zip(together, replies, strict=True):
            if answer.done():  # its caller has stopped waiting
                continue
            if isinstance(reply, Exception):
                answer.set_exception(reply)
            else:
                answer.set_result(reply)

    def _take(self) -> list[tuple[Chunk, Sequence[Arg], asyncio.Future[Any]]]:
        """Take as many submissions as fit one call of bounded work."""
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
        self,
        parts: Iterable[Chunk],
        jobs: Sequence[NewJob],
        values: ArrayValues,
        workflow: str,
        new: bytes,
        key: str,
        fingerprint: str,
    ) -> Any:
        batch = jobs[0].id  # the same again if the submission is repeated
        try:
            staged, reply = await self._stage(parts, reservations(jobs), values, batch, workflow, key, fingerprint)
            if reply[0] == b"STAGED":
                reply = await self._scripts.submission_open(
                    batch=batch,
                    chunks=staged,
                    workflow=workflow,
                    new=new,
                    key=key,
                    fingerprint=fingerprint,
                    ttl_ms=IDEMPOTENCY_MS,
                    first=jobs[0].id,
                    size=len(jobs),
                )
        except BaseException as error:
            await self._afterwards.do(self.abort_quietly(batch), error)
            raise
        if reply[0] in (b"OPEN", b"STORED"):
            await asyncio.gather(self.admit_quietly(batch), self.admit_quietly(batch))  # Redis need not wait for us
        else:
            await self.abort_quietly(batch)
        return reply

    async def _stage(
        self,
        parts: Iterable[Chunk],
        rooms: Iterator[str],
        values: ArrayValues,
        batch: str,
        workflow: str,
        key: str,
        fingerprint: str,
    ) -> tuple[int, Any]:
        """Stage all chunks; return their number, and the last reply.

        Two are sent concurrently, so that Redis does not idle while the next one is made.
        """
        under_way: deque[tuple[Callable[[], Awaitable[Any]], asyncio.Task[Any]]] = deque()
        number, reply = 0, [b"STAGED"]
        try:
            for number, chunk in enumerate(parts, 1):
                if len(under_way) == _STAGES and (reply := await _oldest(under_way, values))[0] != b"STAGED":
                    return number, reply
                stage = partial(
                    self._scripts.submission_stage,
                    batch=batch,
                    chunk=number - 1,
                    workflow=workflow,
                    key=key,
                    fingerprint=fingerprint,
                    size=chunk.jobs,
                    reserve=next(rooms, ""),
                    jobs=chunk.args,
                )
                under_way.append((stage, asyncio.create_task(stage())))
                await asyncio.sleep(0)  # it is sent before the next one is made
            while under_way and reply[0] == b"STAGED":
                reply = await _oldest(under_way, values)
            return number, reply
        finally:
            await end([call for _, call in under_way])

    async def abort_quietly(self, batch: str) -> None:
        """Delete an unopened submission; if Redis is unavailable, the reaper does it later."""
        with suppress(StoreUnavailable):
            while (await self._scripts.submission_abort(batch, 0))[0] == b"MORE":
                pass

    async def admit_quietly(self, batch: str) -> None:
        """Admit the jobs of an open submission; if Redis is unavailable, the reaper continues."""
        with suppress(StoreUnavailable):
            await self.admit(batch)

    async def admit(self, batch: str, ends_at: float = math.inf) -> bool:
        """Admit all jobs of an open submission; return False if it is not open, or time is up."""
        while (reply := await self._scripts.submission_admit(batch))[0] == b"MORE" and time.monotonic() < ends_at:
            pass
        return bool(reply[0] == b"ADMITTED")

    async def tidy(self, batch: str, ends_at: float) -> bool:
        """Admit an open submission, or abort an abandoned one; return whether this is complete."""
        if await self.admit(batch, ends_at):
            return True
        while True:
            [word] = await self._scripts.submission_abort(batch, ABANDONED_MS)
            if word != b"MORE" or time.monotonic() >= ends_at:
                return bool(word == b"ABORTED")


async def _oldest(under_way: deque[tuple[Callable[[], Awaitable[Any]], asyncio.Task[Any]]], values: ArrayValues) -> Any:
    """Return the reply to the chunk that was sent first.

    It is sent again if it arrived before its predecessor (a connection broke, or that one had to wait for values),
    and with its own values if requested.
    """
    stage, call = under_way.popleft()
    reply = await call
    return await values.call(stage) if reply[0] in {b"EARLY", b"VALUES"} else reply


def _answers(reply: Any) -> Sequence[Any]:
    match reply:
        case [b"SUBMITTED", *answers]:
            return answers
        case _:
            raise UnknownReply("job_submit", reply)


def _judge(reply: Any, script: str) -> Submitted | None:
    """Convert the reply of a submission to None (stored), the earlier submission, or an error."""
    match reply:
        case [b"STORED" | b"OPEN", _]:
            return None
        case [b"REPEATED", first, size, workflow]:
            earlier = tuple(ids.ids_from(first.decode(), int(size)))
            return Submitted(earlier, repeated=True, workflow=workflow.decode() or None)
        case [b"RETURNED", holder]:
            return Submitted((holder.decode(),), returned=True)
        case [b"HELD", holder, key]:
            raise UniqueConflict(holder.decode(), key.decode())
        case [b"MISMATCH"]:
            raise IdempotencyConflict("this Idempotency-Key was used before with a different request body")
        case [b"UNKNOWN", *unknown]:
            raise UnknownDependency(list(dict.fromkeys(one.decode() for one in unknown)))
        case [b"BROKEN"]:
            raise StoreBroken("a dependency is damaged in Redis; nothing was stored", retry_after_s=5.0)
        case [b"FULL", excess, rate]:
            raise StoreFull("Redis has no memory left for new work", retry_after_s=_until_gone(excess, rate))
        case [b"QUEUE_FULL", queue, limit, waiting, size, rate]:
            raise QueueFull(
                queue.decode() or None,
                limit=limit,
                waiting=waiting,
                size=size,
                rate=float(rate) if rate else None,
                retry_after_s=_until_gone(waiting + size - limit, rate) if size <= limit else _LATEST_S,
            )
        case [b"WORKFLOW_UNKNOWN"]:
            raise Conflict("the workflow no longer exists")
        case [b"WORKFLOW_CLOSED", why]:
            raise Conflict(f"the workflow accepts no more jobs: {_WHY_CLOSED[why]}")
        case [b"CLOSED" | b"EARLY" | b"INCOMPLETE"]:
            raise GivenUp("the submission timed out and was aborted; nothing was stored")
        case _:
            raise UnknownReply(script, reply)


def _until_gone(jobs: int, rate: bytes) -> float:
    """Return the estimated seconds until this many jobs have ended."""
    if not rate:
        return _RATE_UNKNOWN_S
    return min(_LATEST_S, max(_SOONEST_S, jobs / float(rate))) if float(rate) else _LATEST_S
