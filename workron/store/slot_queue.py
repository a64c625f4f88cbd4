"""Positions of jobs that wait for a slot of their concurrency key."""

from dataclasses import dataclass
from typing import Any, Final

from workron.amounts import counted
from workron.models import Job
from workron.redis.connection import Connection
from workron.redis.keys import Keys

_NAMED: Final = 3
"""Maximum of running jobs named in the sentence; the facts have more of them."""
_LISTED: Final = 20


@dataclass(frozen=True, slots=True)
class InLine:
    """A position in the waiting line of a key, within a queue: `place` counts from 1."""

    key: str
    limit: int
    running: int
    ids: tuple[str, ...]
    place: int
    held_ahead: int

    @property
    def full(self) -> bool:
        return self.running >= self.limit

    def facts(self) -> dict[str, Any]:
        return {
            "held_by": "concurrency",
            "concurrency_key": self.key,
            "limit": self.limit,
            "running": self.running,
            "running_jobs": list(self.ids),
            "ahead": self.place - 1,
            "exact": True,
        }

    def sentence(self, queue: str) -> str:
        named = ", ".join(self.ids[:_NAMED])
        more = f" and {self.running - _NAMED} more" if self.running > _NAMED else ""
        run = f"{self.running} of {counted(self.limit, 'slot is', 'slots are')} taken: {named}{more}"
        where = "the next one" if self.place == 1 else f"number {self.place}"
        return f"It is held by the concurrency key {self.key}, of which {run}; it is {where} in line in queue {queue}."


async def place_in_line(connection: Connection, keys: Keys, job: Job) -> InLine | None:
    """Return the position of a pending job in the waiting line of its key, None if it has none."""
    if job.concurrency is None:
        return None
    key, line = job.concurrency.key, keys.in_line(job.concurrency.key, job.queue)
    limit, running, ids, place = await connection.pipeline(
        [
            ("HGET", keys.concurrency(key), "limit"),
            ("ZCARD", keys.slots(key)),
            ("ZRANGE", keys.slots(key), 0, _LISTED - 1),
            ("ZSCORE", line, job.id),
        ]
    )
    if limit is None or place is None:
        return None
    own = abs(int(float(place)))
    held, let_go = await connection.pipeline([("ZCOUNT", line, "(0", f"({own}"), ("ZCOUNT", line, f"({-own}", "(0")])
    return InLine(key, int(limit), running, tuple(one.decode() for one in ids), held + let_go + 1, held)
