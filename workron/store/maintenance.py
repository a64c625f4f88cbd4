"""The reaper's side of the store: what keeps the system in order, in bounded steps, by any number of processes."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from workron.errors import StoreBroken
from workron.redis.connection import Connection
from workron.redis.keys import Keys
from workron.redis.rounds import Round
from workron.redis.scripts import Scripts, UnknownReply
from workron.store.arrays import Arrays
from workron.store.policy import Policy
from workron.store.reader import Reader
from workron.store.retention import Sweeper, Swept
from workron.store.submit import Submitter

EDGES: Final = 200
LEASES: Final = 100
MEASURED: Final = 500
ROUSED: Final = 100
"""Most edges, leases and queues in one call."""
TIDIED: Final = 100
"""Maximum of abandoned submissions in one pass."""
PASS_S: Final = 0.5
PROMOTED_S: Final = 0.5
"""Maximum time in a pass for dependents and abandoned submissions, and for due jobs. The next pass continues."""


@dataclass(frozen=True, slots=True)
class Lost:
    """An attempt that was taken from its worker."""

    job: str
    attempt: int
    worker: str


@dataclass(frozen=True, slots=True)
class Reaped:
    """The result of a reap pass: jobs requeued, jobs ended, leases found alive, leases postponed after a long gap."""

    requeued: int = 0
    ended: int = 0
    alive: int = 0
    put_off: int = 0
    more: bool = False
    undone: int = 0
    """Passes that Redis does not know any more: it has gone back to an older state."""
    lost: tuple[Lost, ...] = ()


class Maintenance:
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
        self._submitter = submitter
        self._arrays = arrays
        self._policy = policy
        self._passes = 0
        self._pending = Round(connection, keys.pending_queues)
        self._sweeper = Sweeper(connection, keys, scripts, reader, policy)
        self._tidied_to = 0
        self.is_full = False
        """Whether the last look at leases found that there is no room for new work."""

    async def propagate(self, within_s: float = math.inf) -> int:
        """Visit the edges of ended jobs until none are left, or the time is over; returns the number of calls."""
        ends_at = time.monotonic() + within_s
        calls = 1
        while (await self._scripts.maintain_propagate(EDGES))[0] == b"MORE" and time.monotonic() < ends_at:
            calls += 1
        return calls

    async def reap(self) -> Reaped:
        """Take back what silent workers held: one page of leases."""
        too_much = await self._sweeper.excess()
        self.is_full = bool(too_much)
        policy = self._policy
        word = "" if too_much is None else f"{too_much:.6f}"
        seen = self._passes
        match await self._scripts.maintain_reap(policy.pass_ms, policy.lease_ms, policy.stop_ms, LEASES, word, seen):
            case [b"REAPED", undone, passes, requeued, ended, alive, put_off, more, *taken]:
                self._passes = passes
                lost = tuple(Lost(job.decode(), attempt, worker.decode()) for job, attempt, worker in taken)
                return Reaped(requeued, ended, alive, put_off, bool(more), undone=undone, lost=lost)
            case reply:
                raise UnknownReply("maintain_reap", reply)

    async def promote(self, queues: Sequence[str] = ()) -> int | None:
        """Make due jobs pending, for a while; returns the ms until the next job is due, None if none is.

        It also wakes long polls of `queues` in which a job can start, as their rates allow.
        """
        ends_at = time.monotonic() + PROMOTED_S
        next_ms: list[int] = []
        more, at = 1, 0
        while at == 0 or (time.monotonic() < ends_at and (more or at < len(queues))):
            _, more, due_ms = await self._scripts.maintain_promote(EDGES, queues[at : at + ROUSED])
            at += ROUSED
            if not more:  # else jobs are due now, and the next call does them
                next_ms.append(due_ms)
        if more:
            next_ms.append(due_ms)
        return min((due_ms for due_ms in next_ms if due_ms >= 0), default=None)

    async def rouse(self) -> int:
        """Renew lost wake-ups of some queues in which jobs wait, the next ones with each call; returns how many."""
        page = await self._pending.next()
        for start in range(0, len(page), ROUSED):
            await self._scripts.maintain_promote(EDGES, page[start : start + ROUSED])
        return len(page)

    async def measure(self) -> bool:
        """Note how fast some queues drain; False if another reaper has done so just now."""
        return bool((await self._scripts.maintain_measure(MEASURED))[0] == b"MEASURED")

    async def tidy(self, within_s: float = math.inf) -> int:
        """Finish submissions that their submitters left behind, and go on with arrays; returns how many submissions.

        At most half of the time is for submissions. An array goes behind the others after each step.
        """
        began = time.monotonic()
        tidied, damaged = await self._tidy_batches(began + within_s / 2)
        while waiting := await self._connection.call("ZRANGE", self._keys.arrays, 0, 0):
            await self._arrays.step(waiting[0])
            if time.monotonic() > began + within_s:
                break
        if damaged is not None:
            raise damaged
        return tidied

    async def _tidy_batches(self, ends_at: float) -> tuple[int, StoreBroken | None]:
        """Look at the next submissions, in turn; also what error a damaged one gave: it spares the others."""
        start, tidied, looked = self._tidied_to, 0, 0
        damaged: StoreBroken | None = None
        page = await self._connection.call("ZRANGE", self._keys.batches, start, start + TIDIED - 1)
        for batch in page:
            try:
                tidied += await self._submitter.tidy(batch.decode(errors="replace"), ends_at)
            except StoreBroken as error:
                damaged = error
            looked += 1
            if time.monotonic() > ends_at:
                break
        behind = start + looked - tidied
        self._tidied_to = behind if len(page) == TIDIED or looked < len(page) else 0
        return tidied, damaged

    async def sweep(self) -> Swept:
        """Delete finished jobs whose retention has passed, and dead ids in the lists of waiting jobs."""
        return await self._sweeper.sweep()
