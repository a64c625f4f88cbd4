"""The reaper's side of the store: what keeps the system in order, in bounded steps, by any number of processes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from workron.arrays import Arrays
from workron.connection import Connection
from workron.errors import StoreBroken
from workron.keys import Keys
from workron.models import PRIORITIES, QueueState, Status
from workron.policy import Policy
from workron.reading import Reader
from workron.scripts import Scripts
from workron.serverinfo import excess, server_info
from workron.submission import Submitter

EDGES: Final = 200
LEASES: Final = 100
SWEPT: Final = 100
TRIMMED: Final = 500
MEASURED: Final = 500
"""Most edges, leases, finished jobs, list entries and queues in one call."""
ARRAY_S: Final = 0.5
"""How long a pass works on one array."""
EARLY: Final = 2000
"""Finished jobs that a full server forgets before their time, in one sweep."""
SEEN_MS: Final = 5_000
"""They stay for so long even then: who waits for one, or has just cancelled it, is still to see it."""
FINISHED: Final = (Status.DONE, Status.CANCELLED, Status.SKIPPED, Status.FAILED)


@dataclass(frozen=True, slots=True)
class Lost:
    """An attempt that was taken from its worker."""

    job: str
    attempt: int
    worker: str


@dataclass(frozen=True, slots=True)
class Reaped:
    """What a reap pass did: jobs given back, jobs ended, leases found alive, and put off because nobody had looked."""

    requeued: int = 0
    ended: int = 0
    alive: int = 0
    put_off: int = 0
    more: bool = False
    undone: int = 0
    """Passes that Redis does not know any more: it has gone back to an older state."""
    lost: tuple[Lost, ...] = ()


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep pass did."""

    deleted: int = 0
    trimmed: int = 0
    early: int = 0
    """Deleted before their time, on a full server."""


class Upkeep:
    """The periodic transitions."""

    def __init__(
        self,
        connection: Connection,
        keys: Keys,
        scripts: Scripts,
        reader: Reader,
        submitter: Submitter,
        arrays: Arrays,
        policy: Policy,
    ) -> None:
        self._connection = connection
        self._keys = keys
        self._scripts = scripts
        self._reader = reader
        self._submitter = submitter
        self._arrays = arrays
        self._policy = policy
        self._beat = 0

    async def propagate(self) -> int:
        """Visit the edges of ended jobs until none are left; returns the number of calls."""
        calls = 1
        while (await self._scripts.propagate(EDGES))[0] == b"MORE":
            calls += 1
        return calls

    async def reap(self) -> Reaped:
        """Take back what silent workers held: one page of leases."""
        too_much = await self._excess()
        policy = self._policy
        word = "" if too_much is None else f"{too_much:.6f}"
        seen = self._beat
        match await self._scripts.reap(policy.pass_ms, policy.lease_ms, policy.stop_ms, LEASES, word, seen):
            case [b"REAPED", undone, beat, requeued, ended, alive, put_off, more, *taken]:
                self._beat = beat
                lost = tuple(Lost(job.decode(), attempt, worker.decode()) for job, attempt, worker in taken)
                return Reaped(requeued, ended, alive, put_off, bool(more), undone=undone, lost=lost)
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

    async def measure(self) -> None:
        """Note how fast queues drain; another reaper may have done so just now."""
        queues = await self._reader.queue_names()
        since_ms, rate = "", "0"
        for start in range(0, max(len(queues), 1), MEASURED):
            last = start + MEASURED >= len(queues)
            page = queues[start : start + MEASURED]
            match await self._scripts.measure(since_ms, rate, last=last, queues=page):
                case [b"MEASURED", since_ms, rate]:
                    pass
                case [b"TOO_EARLY"]:
                    return

    async def tidy(self) -> int:
        """Go on with arrays, and finish submissions that their submitters left behind; returns how many of those."""
        damaged: StoreBroken | None = None
        tidied = 0
        for job_id in await self._connection.call("ZRANGE", self._keys.arrays, 0, 99):
            try:
                await self._arrays.work_on(job_id.decode(errors="replace"), ARRAY_S)
            except StoreBroken as error:  # the others go on all the same
                damaged = error
        for batch in await self._connection.call("ZRANGE", self._keys.batches, 0, 99):
            try:
                tidied += await self._submitter.tidy([batch.decode(errors="replace")])
            except StoreBroken as error:
                damaged = error
        if damaged is not None:
            raise damaged
        return tidied

    async def sweep(self) -> Swept:
        """Delete finished jobs whose retention has passed, and dead ids in the lists of waiting jobs.

        On a full server some of the oldest finished jobs leave before their time: it would accept no work until then.
        """
        queues = await self._reader.queues()
        trimmed = await self._trim(queues)
        full = bool(await self._excess())
        early, deleted = 0, 0
        damaged: StoreBroken | None = None
        for queue in queues:
            for status in FINISHED:
                try:
                    if queue.counts[status]:
                        deleted += await self._sweep(queue.name, status)
                    if queue.counts[status] and full and early < EARLY:
                        early += await self._sweep(queue.name, status, keep_ms=SEEN_MS, most=EARLY - early)
                except StoreBroken as error:  # the others are swept all the same
                    damaged = error
        if damaged is not None:
            raise damaged
        return Swept(deleted, trimmed, early)

    async def _excess(self) -> float | None:
        return excess(await server_info(self._connection), self._policy.max_memory_share)

    async def _sweep(self, queue: str, status: Status, *, keep_ms: int | None = None, most: int | None = None) -> int:
        if keep_ms is None:
            long = status in (
                Status.FAILED,
                Status.SKIPPED,
            )  # a skipped job is needed to re-arm it by its parent's retry
            keep_ms = self._policy.retention_failed_ms if long else self._policy.retention_done_ms
        total, skip, more = 0, 0, 1
        while more and (most is None or total < most):
            _, deleted, kept, more = await self._scripts.sweep(queue, status, keep_ms, skip, SWEPT)
            total += deleted
            skip += kept
        return total

    async def _trim(self, queues: Sequence[QueueState]) -> int:
        """Clean pending lists in which ids of cancelled jobs outnumber the waiting ones."""
        lists = [(queue, priority) for queue in queues for priority in PRIORITIES]
        replies = await self._reader.each([("LLEN", self._keys.pending(queue.name, p)) for queue, p in lists])
        lengths = [0 if isinstance(reply, Exception) else reply for reply in replies]
        total: Counter[str] = Counter()
        for (queue, _), length in zip(lists, lengths, strict=True):
            total[queue.name] += length
        trimmed = 0
        for (queue, priority), length in zip(lists, lengths, strict=True):
            waiting = queue.counts[Status.PENDING]
            if length and total[queue.name] - waiting > max(1000, waiting):
                trimmed += await self._trim_list(queue.name, priority)
        return trimmed

    async def _trim_list(self, queue: str, priority: int) -> int:
        place = total = 0
        while place >= 0:
            _, place, dropped = await self._scripts.trim(queue, priority, place, TRIMMED)
            total += dropped
        return total
