"""Operations on queues: limits, pauses, purges."""

import time
from typing import Final

from workron.amounts import counted
from workron.errors import Conflict, NotFound
from workron.models import NoLimit, QueueChange, Rate
from workron.redis.scripts import Arg, Scripts, UnknownReply

PURGED: Final = 100
"""Maximum of jobs cancelled in one call."""


class Queues:
    """The transitions of queues."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def change(self, queue: str, change: QueueChange) -> None:
        """Change a queue atomically; create it if needed."""
        fields: list[Arg] = []
        for name, limit in (("max_pending", change.max_pending), ("max_running", change.max_running)):
            if limit is not None:
                fields += [name, "" if isinstance(limit, NoLimit) else limit]
        if change.rate is not None:
            rate = change.rate if isinstance(change.rate, Rate) else None
            fields += ["rate_jobs", "" if rate is None else rate.jobs]
            fields += ["rate_per_ms", "" if rate is None else rate.per_ms]
        if change.paused is not None:
            fields += ["paused", "1" if change.paused else ""]
        await self._scripts.queue_configure(queue, fields)

    async def purge(self, queue: str, within_s: float) -> tuple[int, bool]:
        """Cancel jobs of a queue that are ready to run, in steps; return their number, and whether others are left."""
        cancelled, ends_at = 0, time.monotonic() + within_s
        while True:
            match await self._scripts.queue_purge(queue, PURGED):
                case [b"PURGED", number, more, _]:
                    cancelled += int(number)
                    if not more or time.monotonic() > ends_at:
                        return cancelled, bool(more)
                case reply:
                    raise UnknownReply("queue_purge", reply)

    async def remove(self, queue: str) -> None:
        """Delete a queue without jobs, and its settings; raise Conflict if it has some."""
        match await self._scripts.queue_remove(queue):
            case [b"UNKNOWN"]:
                raise NotFound("queue", queue)
            case [b"HOLDS", number]:
                raise Conflict(f"queue {queue} has {counted(number, 'job')}, including ended ones")
            case [b"FORGOTTEN"]:
                return
            case reply:
                raise UnknownReply("queue_remove", reply)
