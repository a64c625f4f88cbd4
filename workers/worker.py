"""The worker: claims jobs, runs their commands, reports their results. One asyncio process, `slots` commands at a time.

One call delivers results and returns new claims (`_exchange`); attempts that end meanwhile are reported by the
next one, which is sent before the new claims are started: server and worker run in parallel. A request that
finds no job is parked in the store, and repeated as soon as there is work (`_listen`).
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from workers.attempt import Attempt
from workers.cancels import Cancels
from workers.claim_requests import Requests
from workers.delivery import Delivery
from workers.executor import Executor
from workers.guardian import boottime_s
from workers.heartbeat import Heartbeat
from workers.identity import Identity
from workers.limits import NO_LIMITS, Allowance, Limits, until_empty
from workers.output_writer import OutputWriter
from workers.queue_order import Turns
from workers.results import Ended, Ending, log_answers
from workers.source import JobSource
from workers.stopping import Stopping
from workron import ids
from workron.durations import to_seconds
from workron.errors import ApiRefuses, StoreUnavailable
from workron.models import Claim, Claimed, ClaimRequest, Outcome, Reason, Result, WorkerInfo
from workron.models.exchange import MAX_RESULTS
from workron.models.workers import Drain
from workron.runtime.async_tools import end, first_end, unless
from workron.runtime.logger import log
from workron.runtime.outage import Outage
from workron.settings import Settings

LEAVE_S: Final = 2.0
"""How long a stopped worker tries to deregister."""
FEW_SLOTS: Final = 16
"""Maximum of slots filled by one claim."""
MANY_SLOTS: Final = 64
"""Minimum of slots for a second concurrent call."""
PARK_AGAIN_S: Final = 0.001
"""A worker with free slots after a claim claims again after this time: earlier results go with that call."""

_CUT_OFF: Final = Outcome(Reason.WORKER_LOST, error="the worker was ended while it ran")


class Worker:
    """Serves queues until it is stopped or its limits are reached: `async with` its executor and source, then `run`."""

    def __init__(self, settings: Settings, source: JobSource, executor: Executor, limits: Limits = NO_LIMITS) -> None:
        turns = Turns(settings.queues)
        self._identity = Identity(settings.worker_name, turns.names, settings.slots)
        self.id: Final = self._identity.id
        self.slots: Final = settings.slots
        self._log = log.bind(worker=self.id)
        self._source = source
        self._executor = executor
        self._share: Final = min(max(self.slots // 2, FEW_SLOTS), MAX_RESULTS)
        """Maximum of jobs per claim: with many slots, half of them run while the other half is claimed."""
        incarnation = ids.new_id()
        self._queues: Final = turns.names
        self._first = Requests(self.id, turns, incarnation, source.lease_ms // 3)
        self._second = Requests(self.id, turns, f"{incarnation}~2", 0)
        self._limits = limits
        self._allowance = Allowance(limits.max_jobs)
        self.held: Final[dict[int, Attempt]] = {}
        """All unreported claims by fence, including ended attempts: their leases still count."""
        self._starting = 0
        """Received claims that are about to start."""
        self._unstarted: list[Claim] = []
        """Claims received too late, to be released."""
        self._look = True
        """Whether there may be work for free slots."""
        self._parked = asyncio.Event()
        """Set while the first request is parked."""
        self._waiting: asyncio.Task[None] | None = None
        """Waits for the claims of the parked request."""
        self._look_timer: asyncio.TimerHandle | None = None
        self._calls = 0
        """Open calls."""
        self._changed = asyncio.Event()
        self._plenty = False
        """Whether the last claim returned as many jobs as requested."""
        self._enough = asyncio.Event()
        """Set when a second concurrent call is useful."""
        executor.exhaustion.changed = self._look_again
        executor.suspects.begin = source.begin
        self._stopping = Stopping(executor, settings.drain_timeout, self._on_stopping, self._holds_nothing, self._log)
        self._outage = outage = Outage()
        self._delivery = Delivery(source, self.id, self._stopping, outage, self._look_again)
        self._output = OutputWriter(source, self._changed, executor.notes)
        self._ended = Ended(self._output)
        every_s, about = settings.heartbeat_s, self._info
        self._heartbeat = Heartbeat(source, executor, every_s, about, self._held_pairs, self._drain, self._outage)
        self.problem: Final = self._heartbeat.problem
        self._cancels = Cancels(source, executor, self.id, self._heartbeat.hurry)

    async def run(self) -> None:
        """Work until `stop` or a limit; return when no attempt is left."""
        with suppress(StoreUnavailable):  # then its calls will tell
            await self._source.introduce(self._info())
        self._log.info("worker ready", slots=self.slots, queues=",".join(self._queues))
        loops = (
            self._serve(),
            self._serve_beside(),
            self._heartbeat.run(),
            self._output.run(self.held.values()),
            self._cancels.run(),
            self._listen(),
            self._end_when_empty(),
        )
        serving, *others = [asyncio.create_task(loop) for loop in loops]
        try:
            await unless(self._stopping.over, first_end(serving, others))
        finally:
            await end([serving, *others])
        await self._leave()
        self._log.info("worker stopped")

    def stop(self) -> None:
        """Stop claiming; commands get `drain_timeout` to finish, then they are stopped and their jobs released."""
        self._stopping.begin()

    def stop_now(self) -> None:
        """Kill all commands and release their jobs."""
        self._stopping.hurry()

    def _drain(self, wish: Drain) -> None:
        self._stopping.begin(to_seconds(wish.timeout_ms))

    def _on_stopping(self) -> None:
        self._changed.set()
        self._heartbeat.hurry()  # that all see it

    async def _end_when_empty(self) -> None:
        if self._limits.until_empty:
            await until_empty(self._source, self._queues, lambda: not self._busy())
            self.stop()

    async def _leave(self) -> None:
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._give_back()
                await self._source.leave(self.id)
        except (StoreUnavailable, TimeoutError):
            self._log.debug("worker not deregistered")  # it is shown as lost, for an hour

    async def _serve(self) -> None:
        while True:
            self._changed.clear()
            await self._give_back()
            parked = self._first.parked is not None
            if self._allowance.left <= 0 and not self._busy():
                self.stop()
            if self._stopping.begun and not (self._busy() or parked):
                return
            batch = self._ended.take()
            if batch or (self._look and self._wanted(self._first, 0)) or (self._stopping.begun and parked):
                await self._exchange(self._first, batch)
            else:
                await self._changed.wait()

    async def _serve_beside(self) -> None:
        """Run a second concurrent call while there is more to do than one call can carry, to keep the server busy."""
        while True:
            await self._enough.wait()
            self._enough.clear()
            if batch := self._ended.take():
                await self._exchange(self._second, batch)
                self._changed.set()

    def _holds_nothing(self) -> bool:
        return not (self.held or self._starting or self._unstarted)

    def _busy(self) -> bool:
        """Whether the worker has attempts, or may receive some by an open call."""
        return self._calls > 0 or not self._holds_nothing()

    def _wanted(self, requests: Requests, ended: int) -> int:
        """Return how many jobs to claim with the results of `ended` ones: only as many as can start at once."""
        executor = self._executor
        if self._stopping.begun or self._delivery.paused or executor.suspects.keep_clear():
            return 0
        taken = len(self.held) + self._starting + self._first.reserved + self._second.reserved
        other = self._second if requests is self._first else self._first
        wanted = min(self.slots - taken + ended, self._share, self._allowance.left - other.open)
        wanted = int(max(0, wanted))
        return executor.exhaustion.allowed(wanted) if executor.exhaustion.lasts else wanted

    async def _exchange(self, requests: Requests, batch: Sequence[Ending]) -> None:
        """Report results and claim jobs for free slots: one call, repeated until it succeeds."""
        results = [Result(a.claim.id, a.claim.fence, outcome, a.take_output()) for a, outcome in batch]
        wanted = self._wanted(requests, len(batch))
        if wanted == 0 and requests.parked is not None and self._waiting is not None:
            await end([self._waiting])  # before its request ends: later claims would be orphaned
        request = requests.make(wanted)
        requests.reserved = max(0, wanted - len(batch))
        sent_at = boottime_s()  # leases count from the first try: it may have made the claims
        self._calls += 1
        exchanged = await self._delivery.exchange(results, request)
        self._calls -= 1
        requests.reserved = 0
        self._forget(batch)
        if exchanged is None:
            self._note_parked(requests, None)
            return
        if request is not None:
            self._accept(requests, request, exchanged.claimed, sent_at)
        log_answers(self._log, batch, results, exchanged.finished)

    def _accept(self, requests: Requests, request: ClaimRequest, claimed: Claimed, sent_at: float) -> None:
        """Start the new claims after the next call is sent; schedule the next claim."""
        if request.request_id != requests.id:  # another call of this request has brought its claims meanwhile
            self._look_again()
            return
        requests.open = request.limit if claimed.parked else 0
        got_all = 0 < len(claimed.claims) == request.limit
        self._plenty = got_all
        if claimed.answered:
            requests.served()
        self._note_parked(requests, request if claimed.parked else None)
        if requests is self._first:
            self._look = claimed.more or got_all
            self._look_later(claimed)
        if claimed.claims:
            self._allowance.take(len(claimed.claims))
            self._starting += len(claimed.claims)
            if claimed.claims[0].is_suspect:
                self._start_late(claimed.claims, sent_at)  # before the next call: that is not to bring others
            else:
                asyncio.get_running_loop().call_soon(self._start_late, claimed.claims, sent_at)

    def _look_later(self, claimed: Claimed) -> None:
        """Claim again when a job is due, or soon if the request is not parked."""
        wait_s = None if claimed.parked else PARK_AGAIN_S
        if claimed.next_due_in_ms is not None:
            due_s = to_seconds(claimed.next_due_in_ms)
            wait_s = due_s if wait_s is None else min(wait_s, due_s)
        self._look_in(wait_s)

    def _note_parked(self, requests: Requests, request: ClaimRequest | None) -> None:
        requests.parked = request
        if requests is self._first:
            (self._parked.clear if request is None else self._parked.set)()

    def _start_late(self, claims: Sequence[Claim], sent_at: float) -> None:
        self._starting -= len(claims)
        self._start(claims, sent_at)

    def _start(self, claims: Sequence[Claim], sent_at: float) -> None:
        deadline = sent_at + to_seconds(self._source.lease_ms)
        rest_s = deadline - boottime_s()
        if self._stopping.begun or rest_s <= 0:
            self._unstarted += claims
            self._changed.set()
            return
        for claim in claims:
            self._run_one(claim, deadline)
        if rest_s < self._source.lease_ms / 2000:
            self._heartbeat.hurry()  # the call took long: the next heartbeat could come too late

    def _look_in(self, wait_s: float | None) -> None:
        if self._look_timer is not None:
            self._look_timer.cancel()
            self._look_timer = None
        if wait_s is not None:
            self._look_timer = asyncio.get_running_loop().call_later(wait_s, self._look_again)

    def _look_again(self) -> None:
        self._look = True
        self._changed.set()

    def _run_one(self, claim: Claim, deadline: float) -> None:
        self._log.debug("job started", job=claim.id, attempt=claim.attempt)
        attempt = self._executor.start(claim, deadline)
        self.held[claim.fence] = attempt
        if attempt.is_suspect:
            asyncio.get_running_loop().call_at(attempt.alone_until_s + 0.01, self._look_again)
        self._cancels.begun(attempt)
        attempt.task.add_done_callback(lambda task: self._on_end(attempt, task))

    def _on_end(self, attempt: Attempt, task: asyncio.Task[Outcome]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            outcome = _CUT_OFF if task.cancelled() else task.result()
        else:
            claim = attempt.claim
            self._log.error("attempt crashed", job=claim.id, attempt=claim.attempt, exc_info=error)
            outcome = Outcome(Reason.SPAWN, error=f"internal error of the worker: {type(error).__name__}: {error}")
        self._ended.add(attempt, outcome)
        self._changed.set()
        if self._plenty and self.slots >= MANY_SLOTS and len(self._ended) >= self._share // 2:
            self._enough.set()

    def _forget(self, batch: Sequence[Ending]) -> None:
        for attempt, _ in batch:
            del self.held[attempt.claim.fence]

    async def _give_back(self) -> None:
        """Release late claims, and jobs whose commands were stopped because the worker stops or was cut off."""
        claims, self._unstarted = self._unstarted, []
        ended = self._ended.take_given_back()
        claims += [attempt.claim for attempt, _ in ended]
        if claims:
            await self._delivery.release(claims)
            self._allowance.give_back(len(claims))
        self._forget(ended)

    async def _listen(self) -> None:
        """Wait for claims while the first request is parked."""
        while True:
            await self._parked.wait()
            if (request := self._first.parked) is None:
                continue
            self._waiting = asyncio.create_task(self._wait(request))
            try:
                await asyncio.wait([self._waiting])
                if not self._waiting.cancelled():
                    self._waiting.result()
            finally:
                await end([self._waiting])

    async def _wait(self, request: ClaimRequest) -> None:
        """Take the claims of a parked request; a repeat of the request returns the same claims."""
        sent_at = boottime_s()
        try:
            claimed = await self._source.wait(request)
        except ApiRefuses as error:
            await asyncio.sleep(self._delivery.waits_refused(error))
        except StoreUnavailable as error:
            self._outage.failed(error)
            await asyncio.sleep(0.5)
            self._look_again()
        else:
            self._delivery.waits_accepted()
            self._accept(self._first, request, claimed, sent_at)
            self._changed.set()

    def _held_pairs(self) -> list[tuple[str, int]]:
        return [(attempt.claim.id, fence) for fence, attempt in self.held.items()]

    def _info(self) -> WorkerInfo:
        jobs = [attempt.claim.id for attempt in self.held.values()]
        return self._identity.describe(jobs, draining=self._stopping.begun)
