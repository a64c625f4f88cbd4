"""Retention and compaction: deletes finished jobs, and dead ids in lists of pending jobs."""

import time
from collections import Counter
from dataclasses import dataclass
from typing import Final

from workron.errors import StoreBroken
from workron.models import PRIORITIES, Status
from workron.redis.connection import Connection
from workron.redis.keys import Keys
from workron.redis.rounds import Round
from workron.redis.scripts import Scripts
from workron.redis.server_info import excess, server_info
from workron.store.policy import Policy
from workron.store.reader import Reader

DELETED: Final = 100
LOOKS: Final = 500
TRIMMED: Final = 500
"""Maximum of finished jobs deleted, of jobs looked at, and of list entries, in one call."""
SWEEP_S: Final = 0.4
"""Maximum time for deletions in a pass, and for compaction; to make room on a full server, twice as long."""
AGAIN: Final = 4
"""Calls in one pass that look again at kept jobs of a status."""
ROOM_CALLS: Final = 20
"""Calls between two checks of the memory, and maximum of calls in one pass that find nothing to delete."""
SEEN_MS: Final = 5_000
"""Finished jobs stay for this long even on a full server: a client that waits for one, or cancels it, sees the end."""
FINISHED: Final = (Status.DONE, Status.CANCELLED, Status.SKIPPED, Status.FAILED)


@dataclass(frozen=True, slots=True)
class Swept:
    """The result of a pass."""

    deleted: int = 0
    trimmed: int = 0
    early: int = 0
    """Jobs deleted before their time, on a full server."""
    more: bool = False
    """There may be more to delete: the next pass need not wait."""


class Sweeper:
    """Sweeps, and remembers its positions.

    Some jobs stay beyond their retention, mostly because their workflow is unfinished. Later passes look at them again
    only a few at a time, so a pass costs what has ended, not what is kept.
    """

    def __init__(self, connection: Connection, keys: Keys, scripts: Scripts, reader: Reader, policy: Policy) -> None:
        self._connection = connection
        self._keys = keys
        self._scripts = scripts
        self._reader = reader
        self._policy = policy
        self._pending = Round(connection, keys.pending_queues)
        self._looked = dict.fromkeys(FINISHED, "")
        """Position up to which all jobs past their retention were looked at."""
        self._again = dict.fromkeys(FINISHED, "")
        """Position of the next look at kept jobs."""
        self._room = dict.fromkeys(FINISHED, "")
        """Position of the search for jobs to delete early."""
        self._trimming: list[tuple[str, int, int]] = []
        """Lists to continue with: queue, priority, position."""

    async def sweep(self) -> Swept:
        """Delete finished jobs whose retention has passed, and dead ids in the lists of waiting jobs.

        On a full server the oldest finished jobs leave before their time: it would accept no work until then.
        """
        damaged: StoreBroken | None = None
        deleted, more, ends_at = 0, False, time.monotonic() + SWEEP_S
        for status in FINISHED:
            try:
                number, left = await self._sweep(status, ends_at)
                deleted, more = deleted + number, more or left
            except StoreBroken as error:  # the others are swept all the same
                damaged = error
        early = 0
        try:
            early = await self._make_room(time.monotonic() + 2 * SWEEP_S)
        except StoreBroken as error:
            damaged = error
        trimmed = await self._trim(time.monotonic() + SWEEP_S)
        if damaged is not None:
            raise damaged
        return Swept(deleted, trimmed, early, more=more or bool(self._trimming) or early > 0)

    async def excess(self) -> float | None:
        """Return the part of the used memory that is too much, 0..1; None if it is not known."""
        return excess(await server_info(self._connection), self._policy.max_memory_share)

    async def _sweep(self, status: Status, ends_at: float) -> tuple[int, bool]:
        """Delete jobs whose time has passed since the last pass, then look at some kept jobs again."""
        keep_ms = self._policy.retention_done_ms
        if status in (Status.FAILED, Status.SKIPPED):  # a skipped job is needed to re-arm it by its parent's retry
            keep_ms = self._policy.retention_failed_ms
        total, more = 0, True
        while more and time.monotonic() < ends_at:
            deleted, more, self._looked[status] = await self._step(status, keep_ms, self._looked[status])
            total += deleted
        again = AGAIN
        while again and time.monotonic() < ends_at:
            deleted, left, place = await self._step(status, keep_ms, self._again[status])
            self._again[status] = place if left else ""
            total += deleted
            again = 0 if not left else again - (not deleted)
        return total, more

    async def _step(self, status: Status, keep_ms: int, place: str) -> tuple[int, bool, str]:
        _, deleted, more, behind = await self._scripts.maintain_sweep(status, keep_ms, place, DELETED, LOOKS)
        return int(deleted), bool(more), behind.decode()

    async def _make_room(self, ends_at: float) -> int:
        """Delete the oldest finished jobs until there is room, or nothing more is found."""
        total = 0
        full = bool(await self.excess())
        for status in FINISHED if full else ():
            idle, more = 0, True
            while full and more and idle < ROOM_CALLS and time.monotonic() < ends_at:
                for _ in range(ROOM_CALLS):
                    deleted, more, place = await self._step(status, SEEN_MS, self._room[status])
                    self._room[status] = place if more else ""
                    total, idle = total + deleted, idle + (not deleted)
                    if not more:
                        break
                full = bool(await self.excess())
        return total

    async def _trim(self, ends_at: float) -> int:
        """Compact the pending lists of queues in which dead ids outnumber the waiting jobs."""
        if not self._trimming:
            names = await self._pending.next()
            self._trimming = await self._overgrown([name.decode(errors="replace") for name in names])
        trimmed = 0
        while self._trimming and time.monotonic() < ends_at:
            queue, priority, place = self._trimming.pop()
            _, place, dropped = await self._scripts.maintain_trim(queue, priority, place, TRIMMED)
            if place >= 0:
                self._trimming.append((queue, priority, place))
            trimmed += dropped
        return trimmed

    async def _overgrown(self, queues: list[str]) -> list[tuple[str, int, int]]:
        """Return the lists of these queues that need compaction."""
        lists = [(queue, priority) for queue in queues for priority in PRIORITIES]
        replies = await self._reader.each([("HGET", self._keys.queue(queue), "pending") for queue in queues])
        waiting = {
            queue: int(reply) if isinstance(reply, bytes) and reply.isdigit() else 0
            for queue, reply in zip(queues, replies, strict=True)
        }
        replies = await self._reader.each([("LLEN", self._keys.pending(queue, p)) for queue, p in lists])
        lengths = [reply if isinstance(reply, int) else 0 for reply in replies]
        total: Counter[str] = Counter()
        for (queue, _), length in zip(lists, lengths, strict=True):
            total[queue] += length

        def is_overgrown(queue: str) -> bool:
            return total[queue] - waiting[queue] > (max(1000, waiting[queue]) if waiting[queue] else 0)

        pairs = zip(lists, lengths, strict=True)
        return [(queue, priority, 0) for (queue, priority), length in pairs if length and is_overgrown(queue)]
