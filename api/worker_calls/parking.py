"""Waiting claim requests: all of them share one inbox in Redis, and so one listening connection.

A request that finds no job is parked in Redis under this process's inbox (see `lua/attempt_claim.lua`), which receives
the name of its worker when there may be a job; then the request is repeated. However it ends (answered, timed out,
client gone, server stopping), it is unparked, and its claims are sent to the client or released.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Final

from api.store_outage import OutageWatch
from workron import ids
from workron.durations import to_seconds
from workron.errors import StoreUnavailable
from workron.models import Claim, Claimed, ClaimRequest
from workron.runtime.async_tools import end
from workron.runtime.signals import happens
from workron.store import Store
from workron.store.source import RedisSource

_LONGEST_PARK_S: Final = 60.0
_MOST_LOOKS: Final = 20
"""How often a non-waiting request is repeated if a call has not searched all of a queue."""
_AGAIN_S: Final = 0.2


@dataclass(slots=True, eq=False)
class Waiter:
    """One HTTP request for claims; several may carry the same claim request."""

    request: ClaimRequest
    repeatable: bool
    """Whether the client chose the request id, and can repeat the request."""
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    answered: bool = False
    """Whether its claims are being sent to this client, or with a copy of the request to another one."""
    left: bool = False
    """Whether the client has disconnected."""
    watching: asyncio.Task[None] | None = None
    """Watches for the disconnect, once the request waits."""

    def is_copy(self, other: "Waiter") -> bool:
        """Return whether both carry the same claim request."""
        return other is not self and other.request.request_id == self.request.request_id


class Parking:
    """All claim requests of this process. Listens only while requests are waiting."""

    def __init__(self, store: Store, inbox: str, stopping: asyncio.Event, outages: OutageWatch) -> None:
        self.source: Final = RedisSource(store)
        self._store = store
        self._inbox = inbox
        self._stopping = stopping
        self._outages = outages
        self._waiters: dict[str, list[Waiter]] = {}
        """Open requests, by worker."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Task[None] | None = None
        self._at_the_stop: asyncio.Task[None] | None = None
        self._due: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop

    @contextmanager
    def enter(
        self, worker: str, queues: Sequence[str], limit: int, request_id: str | None, *, begins: bool = False
    ) -> Iterator[Waiter]:
        """Register a claim request until its response is sent or abandoned."""
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
        """Return claims; none after `wait_s`, or when the server stops. `left` returns when the client disconnects."""
        if self._stopping.is_set():
            return ()
        ends_at = self._loop.time() + min(wait_s, _LONGEST_PARK_S)
        try:
            claimed = await self._look(waiter, ends_at)
        except StoreUnavailable:
            if not waiter.repeatable:  # the claims may have been made, and only the reply be lost
                self._spawn(self._end(waiter))
            raise
        if claimed.claims or not claimed.parked:
            return claimed.claims
        waiter.watching = asyncio.create_task(self._watch(waiter, left))
        return await self._wait(waiter, ends_at)

    async def give_up(self, waiter: Waiter) -> None:
        """Release the request and its claims: the response can't be delivered."""
        if not waiter.answered and not self._copies(waiter):
            await self._end(waiter)

    def answered(self, waiter: Waiter) -> None:
        """Mark the claims as being sent to the client."""
        for one in (waiter, *self._copies(waiter)):
            one.answered = True

    def _copies(self, waiter: Waiter) -> list[Waiter]:
        return [other for other in self._waiters[waiter.request.worker] if waiter.is_copy(other)]

    async def aclose(self) -> None:
        if self._due is not None:
            self._due.cancel()
        await end(task for task in (*self._tasks, self._listening, self._at_the_stop) if task is not None)
        await self.source.aclose()

    async def _look(self, waiter: Waiter, ends_at: float) -> Claimed:
        """Claim from the store, until all is searched; park the request for the remaining time if there is no job."""
        looks = 0
        while True:
            waiter.heard.clear()
            park_ms = max(0, int((ends_at - self._loop.time()) * 1000))
            if park_ms:
                self._listen()
            request = replace(waiter.request, park_ms=park_ms)
            claimed = await self._store.attempts.claim(request)
            looks += 1
            if claimed.answered or not claimed.more or looks >= _MOST_LOOKS:
                self._note_due(claimed)
                return claimed

    async def _wait(self, waiter: Waiter, ends_at: float) -> tuple[Claim, ...]:
        while True:
            await happens(waiter.heard, within_s=ends_at - self._loop.time())
            if waiter.left:
                return ()
            if self._stopping.is_set() or self._loop.time() >= ends_at:
                await self.give_up(waiter)
                return ()
            try:
                claimed = await self._look(waiter, ends_at)
            except StoreUnavailable as error:
                # What was parked may outlast that, or not: this call may have ended it without its answer.
                self._outages.failed(error)
                waiter.heard.clear()
                self._loop.call_later(_AGAIN_S * random.uniform(3, 6), waiter.heard.set)  # noqa: S311 - jitter
                continue
            if claimed.answered or not claimed.parked:
                return claimed.claims

    async def _end(self, waiter: Waiter) -> None:
        """Unpark the request and release its claims."""
        with self._outages.outlasted():  # a parked one ends by itself, and the reaper finds unused claims
            await self._store.attempts.claim(replace(waiter.request, limit=0))

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
        # A wait is never given up half way: the name that it had popped would be lost.
        async with self._store.attempts.own_connection() as waiting:
            while self._waiters:
                try:
                    worker = await self._store.attempts.woken(self._inbox, waiting)
                except StoreUnavailable as error:
                    self._outages.failed(error)
                    await self._come_back()
                    continue
                for waiter in self._waiters.get(worker or "", ()):
                    waiter.heard.set()

    async def _come_back(self) -> None:
        """Wait until the store is available; then repeat all requests, as parked ones may be lost."""
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

    def _note_due(self, claimed: Claimed) -> None:
        """Promote due jobs in time, once for all waiting requests, which are woken by that."""
        if not claimed.parked or claimed.next_due_in_ms is None:
            return
        due_at = self._loop.time() + to_seconds(claimed.next_due_in_ms)
        if self._due is None or due_at < self._due.when():
            if self._due is not None:
                self._due.cancel()
            self._due = self._loop.call_at(due_at, lambda: self._spawn(self._promote()))

    async def _promote(self) -> None:
        self._due = None
        with self._outages.outlasted():  # the reaper does it too
            waiters = (waiter for same_worker in self._waiters.values() for waiter in same_worker)
            queues = {queue for waiter in waiters for queue in waiter.request.queues}
            next_due_ms = await self._store.maintenance.promote(sorted(queues))
            if self._waiters:
                self._note_due(Claimed(parked=True, next_due_in_ms=next_due_ms))

    def _spawn(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
