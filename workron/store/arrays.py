"""Arrays: many tasks of one job, created when they may start."""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from workron.amounts import counted
from workron.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    StoreUnavailable,
    UniqueConflict,
    UnknownDependency,
)
from workron.models import Job, NewJob
from workron.redis.scripts import Scripts, UnknownReply

STEP: Final = 100
"""Maximum of tasks in one call."""
_IN_A_REQUEST_S: Final = 0.2


class Arrays:
    """The transitions that only arrays and their tasks have."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def check(self, jobs: Sequence[NewJob], read: Callable[[Sequence[str]], Awaitable[list[Job | None]]]) -> None:
        """Raise InvalidRequest if an array matches a job that is not an array of the same size."""
        followers = [job for job in jobs if job.depends_on and any(edge.matching for edge in job.depends_on)]
        sizes = {job.id: job.array.size if job.array else 0 for job in jobs} if followers else {}
        for job in followers:
            followed = [edge.job for edge in job.depends_on if edge.matching]
            for unknown in [parent for parent in followed if parent not in sizes]:
                [found] = await read([unknown])
                if found is None:
                    raise UnknownDependency([unknown])
                sizes[unknown] = found.array.size if found.array else 0
            _match(sizes[job.id], followed, sizes)

    async def step(self, job_id: str | bytes) -> bool:
        """Create or update some tasks of an array; return whether others are left."""
        match await self._scripts.array_advance(job_id, STEP):
            case [b"MORE"]:
                return True
            case [b"SETTLED" | b"UNKNOWN"]:
                return False
            case reply:
                raise UnknownReply("array_advance", reply)

    async def work_on(self, job_id: str, within_s: float) -> None:
        """Advance an array; the rest is left to the next pass."""
        ends_at = time.monotonic() + within_s
        while await self.step(job_id) and time.monotonic() < ends_at:
            pass

    async def work_on_quietly(self, job_id: str) -> None:
        """Do the same for a limited time; then, or if Redis is unavailable, the reaper continues."""
        with suppress(StoreUnavailable):
            await self.work_on(job_id, _IN_A_REQUEST_S)

    async def tasks(self, job_id: str, what: str, indexes: Sequence[int]) -> dict[str, int]:
        """Cancel or retry tasks of an array; return how many of them are `cancelled`, `cancelling`, `retried` …"""
        counted: Counter[str] = Counter()
        for start in reversed(range(0, len(indexes), STEP)):  # dropped tasks are the last ones
            match await self._scripts.array_tasks(job_id, what, indexes[start : start + STEP]):
                case [b"DROPPED", place]:
                    said = f"task {place} of job {job_id} ended with its array before it was created"
                    raise Conflict(f"{said}: retry the whole array")
                case [b"TASKS", *words]:
                    counted.update(word.decode() for word in words)
                case [b"NOT_STARTED", status]:
                    raise Conflict(f"job {job_id} has not started its tasks: it is {status.decode()}")
                case [b"HELD", holder, key]:
                    raise UniqueConflict(holder.decode(), key.decode())
                case [b"UNKNOWN"]:
                    raise NotFound("job", job_id)
                case reply:
                    raise UnknownReply("array_tasks", reply)
        await self.work_on_quietly(job_id)
        return dict(counted)


def _match(size: int, followed: Sequence[str], sizes: Mapping[str, int]) -> None:
    if not size or len(followed) > 1:
        raise InvalidRequest(
            "matching requires an array with exactly one dependency, on another array", field="depends_on"
        )
    its_size = sizes[followed[0]]
    if its_size != size:
        what = f"has {counted(its_size, 'task')}" if its_size else "is not an array"
        raise InvalidRequest(f"tasks can't match: job {followed[0]} {what}, this one has {size}", field="depends_on")
