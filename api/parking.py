"""Claim requests that wait: a thousand of them share one inbox in Redis, and so one connection that listens to it.

A request that finds nothing is parked in Redis under this process's inbox (see `lua/claim.lua`). News bring what a
submission claimed for it, or the hint to look again. However it ends (answered, timed out, client gone, server
stopping), it is parked no longer then, and what it got goes to its client or back.
"""

import asyncio
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Final

from api.outages import OutageWatch
from workers.redis_source import RedisSource
from workron import ids
from workron.errors import StoreUnavailable
from workron.exchange import News
from workron.models import Claim, Claimed, ClaimRequest
from workron.signals import happens
from workron.store import Store
from workron.tasks import end

_LONGEST_PARK_S: Final = 60.0
_MOST_LOOKS: Final = 20
"""So often a request that does not wait looks again where a call has not seen all of a queue."""
_AGAIN_S: Final = 0.2
_ANSWERED_S: Final = 5.0
"""News about a request may come so long after its answer."""

Key = tuple[str, str]


@dataclass(slots=True, eq=False)
class Waiter:
    """One HTTP request for claims; several may carry the same claim request."""

    request: ClaimRequest
    repeatable: bool
    """Its client knows the request id, and may make it again."""
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    claims: tuple[Claim, ...] = ()
    left: bool = False
    """The client has gone."""
    watching: asyncio.Task[None] | None = None
    """Notices that it goes, once there is something to wait for."""

    @property
    def key(self) -> Key:
        return self.request.worker, self.request.request_id


class Parking:
    """All claim requests of this process. Listens only while somebody waits."""

    def __init__(self, store: Store, inbox: str, stopping: asyncio.Event, outages: OutageWatch) -> None:
        self.source: Final = RedisSource(store)
        self._store = store
        self._inbox = inbox
        self._stopping = stopping
        self._outages = outages
        self._waiters: dict[str, list[Waiter]] = {}
        """Whoever is to be answered, by worker."""
        self._answered: OrderedDict[Key, float] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Task[None] | None = None
        self._at_the_stop: asyncio.Task[None] | None = None
        self._due: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop

    @contextmanager
    def enter(
        self, worker: str, queues: Sequence[str], limit: int, request_id: str | None, *, begins: bool = False
    ) -> Iterator[Waiter]:
        """Hold a place for a claim request until its answer is sent or given up."""
        self._loop = asyncio.get_running_loop()
        request = ClaimRequest(worker, queues, limit, request_id or ids.new_id(), inbox=self._inbox, begins=begins)
        waiter = Waiter(request, repeatable=request_id is not None)
        self._waiters.setdefault(request.worker, []).append(waiter)
        try:
            yield waiter
        finally:
            same_worker = self._waiters[request.worker]
            same_worker.remove(waiter)
            if not same_worker:
                del self._waiters[request.worker]
            else:  # in Redis a worker has one parked request: the next one takes the place
                same_worker[0].heard.set()

    async def claim(self, waiter: Waiter, wait_s: float, left: Callable[[], Awaitable[None]]) -> tuple[Claim, ...]:
        """Return claims; none after `wait_s`, or when the server stops. `left` returns when the client has gone."""
        if self._stopping.is_set():
            return ()
        ends_at = self._loop.time() + min(wait_s, _LONGEST_PARK_S)
        try:
            claimed = await self._look(waiter, ends_at)
        except StoreUnavailable:
            if not waiter.repeatable:  # the claims may have been made, and only the reply be lost
                self._spawn(self._withdraw(waiter.request))
            raise
        if claimed.claims or not claimed.parked:
            return claimed.claims
        waiter.watching = asyncio.create_task(self._watch(waiter, left))
        return await self._wait(waiter, ends_at)

    async def give_up(self, waiter: Waiter) -> None:
        """Take the request back, and what it has got: its answer can't be delivered."""
        others = any(other.key == waiter.key for other in self._waiters[waiter.request.worker] if other is not waiter)
        if not others and waiter.key not in self._answered:
            with self._outages.outlasted():  # the reaper finds what nobody has taken
                await self._store.attempts.withdraw(waiter.request)

    def answered(self, waiter: Waiter) -> None:
        """Note that the claims are on their way to the client."""
        now = self._loop.time()
        self._answered[waiter.key] = now
        while now - next(iter(self._answered.values())) > _ANSWERED_S:
            self._answered.popitem(last=False)

    async def aclose(self) -> None:
        if self._due is not None:
            self._due.cancel()
        await end(task for task in (*self._tasks, self._listening, self._at_the_stop) if task is not None)
        await self.source.aclose()

    async def _look(self, waiter: Waiter, ends_at: float) -> Claimed:
        """Ask the store, again while it has not seen all; parked for the rest of the time if there is nothing."""
        looks = 0
        while True:
            waiter.heard.clear()
            park_ms = max(0, int((ends_at - self._loop.time()) * 1000))
            if park_ms:
                self._listen()
            request = replace(waiter.request, park_ms=park_ms)
            claimed = (await self.source.exchange(request.worker, (), request)).claimed
            looks += 1
            if claimed.answered or not claimed.more or (looks >= _MOST_LOOKS and not park_ms):
                self._note_due(claimed)
                return claimed

    async def _wait(self, waiter: Waiter, ends_at: float) -> tuple[Claim, ...]:
        while True:
            await happens(waiter.heard, within_s=ends_at - self._loop.time())
            if waiter.claims:
                return waiter.claims
            if waiter.left:
                return ()
            if self._stopping.is_set() or self._loop.time() >= ends_at:
                return await self._end(waiter)
            try:
                claimed = await self._look(waiter, ends_at)
            except StoreUnavailable as error:
                # What was parked may outlast that, or not: this call may have ended it without its answer.
                self._outages.failed(error)
                waiter.heard.clear()
                self._loop.call_later(_AGAIN_S * random.uniform(3, 6), waiter.heard.set)  # noqa: S311 - jitter
                continue
            if claimed.answered:
                return claimed.claims

    async def _end(self, waiter: Waiter) -> tuple[Claim, ...]:
        """Be parked no longer, and return what came in the last moment."""
        last = replace(waiter.request, limit=0)
        with self._outages.outlasted():
            return waiter.claims or (await self.source.exchange(last.worker, (), last)).claimed.claims
        return ()

    async def _watch(self, waiter: Waiter, left: Callable[[], Awaitable[None]]) -> None:
        await left()
        waiter.left = True
        waiter.heard.set()

    def _listen(self) -> None:
        if self._listening is None or self._listening.done():
            self._listening = self._loop.create_task(self._hear_all())
        if self._at_the_stop is None:
            self._at_the_stop = self._loop.create_task(self._rouse_at_the_stop())

    async def _rouse_at_the_stop(self) -> None:
        await self._stopping.wait()
        self._rouse()

    async def _hear_all(self) -> None:
        # A wait for news is never given up half way: what it had popped would be lost.
        while self._waiters:
            try:
                news = await self.source.news(self._inbox)
            except StoreUnavailable as error:
                self._outages.failed(error)
                await self._come_back()
                continue
            if news is not None:
                self._hear(news)

    async def _come_back(self) -> None:
        """Wait until the store answers; then all look again, for what was parked may be gone."""
        while True:
            await asyncio.sleep(_AGAIN_S)
            with suppress(StoreUnavailable):
                await self._store.ping()
                self._rouse()
                return

    def _rouse(self) -> None:
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.heard.set()

    def _hear(self, news: News) -> None:
        key = news.worker, news.request_id
        concerned = [waiter for waiter in self._waiters.get(news.worker, ()) if waiter.key == key]
        for waiter in concerned:
            waiter.claims = waiter.claims or news.claims
            waiter.heard.set()
        if not concerned and key not in self._answered:
            request = ClaimRequest(news.worker, (), 0, news.request_id, inbox=self._inbox)
            self._spawn(self._withdraw(request))

    async def _withdraw(self, request: ClaimRequest) -> None:
        with self._outages.outlasted():
            await self._store.attempts.withdraw(request)

    def _note_due(self, claimed: Claimed) -> None:
        """Have due jobs made pending in time, once for all who wait: their news come from that."""
        if not claimed.parked or claimed.next_due_in_ms is None:
            return
        due_at = self._loop.time() + claimed.next_due_in_ms / 1000
        if self._due is None or due_at < self._due.when():
            if self._due is not None:
                self._due.cancel()
            self._due = self._loop.call_at(due_at, lambda: self._spawn(self._promote()))

    async def _promote(self) -> None:
        self._due = None
        with self._outages.outlasted():  # the reaper does it too
            waiters = (waiter for same_worker in self._waiters.values() for waiter in same_worker)
            queues = {queue for waiter in waiters for queue in waiter.request.queues}
            next_due_ms = await self._store.upkeep.promote(sorted(queues))
            if self._waiters:
                self._note_due(Claimed(parked=True, next_due_in_ms=next_due_ms))

    def _spawn(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
