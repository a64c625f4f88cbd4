"""The reaper's side of the store: what keeps the system in order, in bounded steps, by any number of processes."""

from dataclasses import dataclass
from typing import Final

from workron.connection import Connection
from workron.keys import Keys
from workron.models import QueueState, Status
from workron.policy import Policy
from workron.reading import Reader
from workron.scripts import Scripts
from workron.serverinfo import nearly_full, server_info
from workron.submission import Submitter

EDGES: Final = 200
LEASES: Final = 100
SWEPT: Final = 100
TRIMMED: Final = 500
"""Most edges, leases, finished jobs and list entries in one call."""


@dataclass(frozen=True, slots=True)
class Reaped:
    """What a reap pass did: jobs given back, jobs ended, leases found alive. `waiting`: nothing may be reaped yet."""

    requeued: int = 0
    ended: int = 0
    alive: int = 0
    more: bool = False
    waiting: bool = False
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep pass did."""

    deleted: int = 0
    trimmed: int = 0


class Upkeep:
    """The periodic transitions."""

    def __init__(
        self, connection: Connection, keys: Keys, scripts: Scripts, reader: Reader, submitter: Submitter, policy: Policy
    ) -> None:
        self._connection = connection
        self._keys = keys
        self._scripts = scripts
        self._reader = reader
        self._submitter = submitter
        self._policy = policy

    async def propagate(self) -> int:
        """Visit the edges of ended jobs until none are left; returns the number of calls."""
        calls = 1
        while (await self._scripts.propagate(EDGES))[0] == b"MORE":
            calls += 1
        return calls

    async def reap(self) -> Reaped:
        """Take back what silent workers held: one page of leases."""
        full = nearly_full(await server_info(self._connection))
        policy = self._policy
        word = "" if full is None else str(int(full))
        match await self._scripts.reap(policy.pass_ms, policy.lease_ms, policy.stop_ms, LEASES, word):
            case [b"WAITING", _]:
                return Reaped(waiting=True)
            case [b"REAPED", requeued, ended, alive, more, *taken]:
                return Reaped(requeued, ended, alive, bool(more), ids=tuple(one.decode() for one in taken))
            case reply:
                raise AssertionError(f"unknown reply to reap: {reply!r}")

    async def promote(self) -> int | None:
        """Make due jobs pending and renew lost wake-ups; returns the ms until the next job is due, None if none is."""
        queues = await self._reader.queue_names()
        for start in range(0, max(len(queues), 1), 100):
            _, more, due_ms = await self._scripts.promote(EDGES, queues[start : start + 100])
        while more:
            _, more, due_ms = await self._scripts.promote(EDGES, ())
        return due_ms if due_ms >= 0 else None

    async def tidy(self) -> int:
        """Finish submissions that their submitters left behind; returns how many."""
        batches = await self._connection.call("ZRANGE", self._keys.batches, 0, 99)
        return await self._submitter.tidy([batch.decode() for batch in batches])

    async def sweep(self) -> Swept:
        """Delete finished jobs whose retention has passed, and dead ids in the lists of waiting jobs."""
        deleted = trimmed = 0
        for queue in await self._reader.queues():
            trimmed += await self._trim(queue)
            for status in (Status.DONE, Status.CANCELLED, Status.SKIPPED, Status.FAILED):
                if queue.counts[status]:
                    deleted += await self._sweep(queue.name, status)
        return Swept(deleted, trimmed)

    async def _sweep(self, queue: str, status: Status) -> int:
        failed = status is Status.FAILED
        keep_ms = self._policy.retention_failed_ms if failed else self._policy.retention_done_ms
        total, skip, more = 0, 0, 1
        while more:
            _, deleted, kept, more = await self._scripts.sweep(queue, status, keep_ms, skip, SWEPT)
            total += deleted
            skip += kept
        return total

    async def _trim(self, queue: QueueState) -> int:
        """Clean the pending lists of a queue in which ids of cancelled jobs outnumber the waiting ones."""
        lengths = await self._connection.pipeline([("LLEN", self._keys.pending(queue.name, p)) for p in range(1, 10)])
        dead = sum(lengths) - queue.counts[Status.PENDING]
        if dead <= max(1000, queue.counts[Status.PENDING]):
            return 0
        total = 0
        for priority, length in enumerate(lengths, start=1):
            place = 0 if length else -1
            while place >= 0:
                _, place, dropped = await self._scripts.trim(queue.name, priority, place, TRIMMED)
                total += dropped
        return total
