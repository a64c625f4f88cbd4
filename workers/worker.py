"""The worker: claims jobs, runs their commands, reports how they ended. One asyncio process, `slots` commands at once.

One call carries results to the store and new claims back (`_exchange`); what ends while it is under way goes with the
next one, which is sent before the claims that came are started: the server works while the worker does. A request that
finds nothing is parked in the store, which then claims for the worker as soon as there is work (`_listen_for_news`).
"""

import asyncio
import os
import platform
import re
import time
from collections.abc import Sequence
from typing import Final

import structlog

from workers.executor import Attempt, Executor
from workers.guardian import boottime_s
from workers.heartbeat import Heartbeat
from workers.output_writer import OutputWriter
from workers.source import JobSource
from workron import __version__, ids
from workron.errors import StoreUnavailable
from workron.exchange import MAX_RESULTS
from workron.models import Claim, Claimed, ClaimRequest, Finished, News, Outcome, Reason, Result, Verdict, WorkerInfo
from workron.outage import Outage
from workron.settings import Settings
from workron.tasks import end

PATIENCE_S: Final = 15.0
"""How long after the grace a stopping worker tries to deliver results while Redis is away."""
FEW_SLOTS: Final = 16
"""So many slots are filled by one claim."""
MAX_OUTPUT: Final = 1_000_000
"""Bytes of output in one call."""
PARK_AGAIN_S: Final = 0.001
"""Who was handed jobs asks for more after this time: a result that comes sooner takes the request along."""

_CUT_OFF: Final = Outcome(Reason.WORKER_LOST, error="the worker was ended while it ran")

log = structlog.get_logger()


class Worker:
    """Serves queues until told to stop: `async with` its executor and source, then `run`."""

    def __init__(self, settings: Settings, source: JobSource, executor: Executor) -> None:
        self.id: Final = worker_id(settings.worker_name)
        self.slots: Final = settings.slots
        self._source = source
        self._executor = executor
        self._queues = tuple(settings.queues)
        self._share: Final = min(max(self.slots // 2, FEW_SLOTS), MAX_RESULTS)
        """Most jobs in one claim: with many slots half of them run while the other half is on its way."""
        self._grace_s = settings.shutdown_grace
        self._started_at_ms = int(time.time() * 1000)
        self._park_ms: Final = source.lease_ms // 3
        """How long a request stays parked. The leases of what it gets count from its beginning, for us."""
        self._incarnation = ids.new_id()
        self._requests = 1
        """Number of the request that has not got claims yet."""
        self._asked_at = 0.0
        """When it was sent the last time, as by `boottime_s`."""
        self._parked_at: float | None = None
        """When it was sent to be parked; None while it is not known to be."""
        self._held: dict[int, Attempt] = {}
        """All that is claimed and not yet reported, by fence; ended attempts too: their leases still count."""
        self._ended: list[tuple[Attempt, Outcome]] = []
        self._starting = 0
        """Claims that have come and are started in a moment."""
        self._unstarted: list[Claim] = []
        """Claims that came too late, to be given back."""
        self._look = True
        """Whether there may be work for free slots."""
        self._look_timer: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._stopping = False
        self._hurried = False
        self._patient_until = 0.0
        self._outage = Outage()
        self._output = OutputWriter(source, self._changed)
        self._heartbeat = Heartbeat(source, executor, settings.heartbeat_s, self._info, self._held_pairs, self._outage)

    async def run(self) -> None:
        """Work until `stop`; returns when nothing is held any more."""
        log.info("worker ready", worker=self.id, slots=self.slots, queues=",".join(self._queues))
        loops = (
            self._serve(),
            self._heartbeat.run(),
            self._output.run(self._held.values()),
            self._listen_for_cancels(),
            self._listen_for_news(),
        )
        tasks = [asyncio.create_task(loop) for loop in loops]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # only serving ends by itself: an error of any ends the worker
        finally:
            await end(tasks)
        log.info("worker stopped", worker=self.id)

    def stop(self) -> None:
        """Claim no more; commands get `shutdown_grace` to finish, then they are stopped and their jobs given back."""
        if not self._stopping:
            self._stopping = True
            self._changed.set()
            log.info("worker draining", worker=self.id, running=len(self._held), grace_s=self._grace_s)
            self._patient_until = time.monotonic() + self._grace_s + PATIENCE_S
            asyncio.get_running_loop().call_later(self._grace_s, self._stop_commands)

    def stop_now(self) -> None:
        """Kill all commands and give their jobs back."""
        self.stop()
        self._hurried = True
        for attempt in list(self._executor.attempts.values()):
            attempt.stop(now=True)
        self._changed.set()

    def _stop_commands(self) -> None:
        for attempt in list(self._executor.attempts.values()):
            attempt.stop()

    async def _serve(self) -> None:
        while True:
            self._changed.clear()
            await self._give_back()
            if self._stopping and not self._held and not self._starting and self._parked_at is None:
                return
            batch = self._take_ended()
            free = 0 if self._stopping else self.slots - len(self._held) - self._starting
            if batch or (free > 0 and self._look) or (self._stopping and self._parked_at is not None):
                await self._exchange(batch, free)
            else:
                await self._changed.wait()

    async def _exchange(self, batch: Sequence[tuple[Attempt, Outcome]], free: int) -> None:
        """Report results and claim for the slots that are free then: one call, repeated until it is answered."""
        results = [Result(a.claim.id, a.claim.fence, outcome, a.output.take()) for a, outcome in batch]
        request = self._request(0 if self._stopping else min(free + len(batch), self._share))
        self._asked_at = sent_at = boottime_s()  # leases count from the first try: the claims may have been made then
        while True:
            try:
                exchanged = await self._source.exchange(self.id, results, request)
                break
            except StoreUnavailable as error:
                self._outage.failed(error)
                if self._gives_up(batch):
                    self._forget(batch)
                    self._parked_at = None  # what it may get is soon found to be undelivered
                    return
                await asyncio.sleep(0.2)
        self._outage.worked()
        self._forget(batch)
        if request is not None:
            self._accept(request, exchanged.claimed, sent_at)
        for (attempt, outcome), finished in zip(batch, exchanged.finished, strict=True):
            self._log_end(attempt, outcome, finished)

    def _gives_up(self, batch: Sequence[tuple[Attempt, Outcome]]) -> bool:
        """Whether to stop without Redis: at once with nothing to report, else some time after the grace."""
        return self._stopping and (self._hurried or not batch or time.monotonic() > self._patient_until)

    def _request_id(self) -> str:
        return f"{self._incarnation}:{self._requests}"

    def _request(self, limit: int) -> ClaimRequest | None:
        """Return a request for so many jobs; for none of them only to end the parked one."""
        if limit == 0 and self._parked_at is None:
            return None
        return ClaimRequest(self.id, self._queues, limit, self._request_id(), self._park_ms if limit else 0)

    def _accept(self, request: ClaimRequest, claimed: Claimed, sent_at: float) -> None:
        """Start what was claimed, but after the next call is sent; note whether and when to look for more."""
        if request.request_id != self._request_id():  # it was parked before; news brought the same claims meanwhile
            self._look_again()
            return
        self._look = claimed.more or claimed.spent or 0 < len(claimed.claims) == request.limit
        self._parked_at = sent_at if claimed.parked else None
        look_in_ms = [self._park_ms] if claimed.parked else []
        look_in_ms += [claimed.next_due_in_ms] if claimed.next_due_in_ms is not None else []
        self._look_in(min(look_in_ms) / 1000 if look_in_ms else None)
        self._requests += claimed.spent
        if claimed.claims:
            self._requests += 1
            self._starting += len(claimed.claims)
            asyncio.get_running_loop().call_soon(self._start_late, claimed.claims, sent_at)

    def _start_late(self, claims: Sequence[Claim], sent_at: float) -> None:
        self._starting -= len(claims)
        self._start(claims, sent_at)

    def _start(self, claims: Sequence[Claim], sent_at: float) -> None:
        deadline = sent_at + self._source.lease_ms / 1000
        rest_s = deadline - boottime_s()
        if self._stopping or rest_s <= 0:
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
        log.debug("job started", job=claim.id, attempt=claim.attempt, worker=self.id)
        attempt = self._executor.start(claim, deadline)
        self._held[claim.fence] = attempt
        attempt.task.add_done_callback(lambda task: self._on_end(attempt, task))

    def _on_end(self, attempt: Attempt, task: asyncio.Task[Outcome]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            outcome = _CUT_OFF if task.cancelled() else task.result()
        else:
            claim = attempt.claim
            log.error("attempt broke", job=claim.id, attempt=claim.attempt, worker=self.id, exc_info=error)
            outcome = Outcome(Reason.SPAWN, error=f"the worker could not run it: {type(error).__name__}: {error}")
        self._ended.append((attempt, outcome))
        self._changed.set()

    def _take_ended(self) -> list[tuple[Attempt, Outcome]]:
        """Take what has ended for the next call, bounded in number and bytes; output under way is waited for."""
        batch: list[tuple[Attempt, Outcome]] = []
        left: list[tuple[Attempt, Outcome]] = []
        room = MAX_OUTPUT
        for attempt, outcome in self._ended:
            size = attempt.output.untaken
            if len(batch) == MAX_RESULTS or (batch and size > room) or attempt.claim.fence in self._output.under_way:
                left.append((attempt, outcome))
            else:
                batch.append((attempt, outcome))
                room -= size
        self._ended = left
        return batch

    def _forget(self, batch: Sequence[tuple[Attempt, Outcome]]) -> None:
        for attempt, _ in batch:
            del self._held[attempt.claim.fence]

    async def _give_back(self) -> None:
        """Give back what came too late, and the jobs whose commands were stopped because the worker goes."""
        claims, self._unstarted = self._unstarted, []
        stopped = [(attempt, outcome) for attempt, outcome in self._ended if attempt.stopped]
        if stopped:
            self._ended = [pair for pair in self._ended if pair not in stopped]
            self._forget(stopped)
            claims += [attempt.claim for attempt, _ in stopped]
        if claims:
            await self._release(claims)

    async def _release(self, claims: Sequence[Claim]) -> None:
        about = [{"job": claim.id, "attempt": claim.attempt, "worker": self.id} for claim in claims]
        try:
            await self._source.release([(claim.id, claim.fence) for claim in claims])
            for fields in about:
                log.info("job given back", **fields)
        except StoreUnavailable as error:
            for fields in about:
                log.warning("job not given back, the reaper will do it", error=str(error), **fields)

    def _log_end(self, attempt: Attempt, outcome: Outcome, finished: Finished) -> None:
        claim = attempt.claim
        about = {"job": claim.id, "attempt": claim.attempt, "worker": self.id, "status": finished.status}
        if finished.verdict not in (Verdict.ACCEPTED, Verdict.RECORDED):
            log.warning("result refused", verdict=finished.verdict, **about)
        elif outcome.reason is None:
            log.info("job done", **about)
        else:
            ended = {"reason": outcome.reason, "exit_code": outcome.exit_code, "signal": outcome.signal}
            log.info("attempt failed", **ended, **about)

    async def _listen_for_cancels(self) -> None:
        while True:
            try:
                async for worker, job_id, fence in self._source.cancels():
                    attempt = self._executor.attempts.get(fence) if worker == self.id else None
                    if attempt is not None:
                        log.info("cancelling job", job=job_id, attempt=attempt.claim.attempt, worker=self.id)
                        attempt.cancel()
            except StoreUnavailable:
                await asyncio.sleep(1)  # heartbeats bring cancels too

    async def _listen_for_news(self) -> None:
        """Take what the parked request has got; the same claims come if it is made again, whichever is first."""
        while True:
            try:
                news = await self._source.news(self.id)
            except StoreUnavailable as error:
                self._outage.failed(error)
                await asyncio.sleep(0.5)
                self._look_again()
                continue
            if news is not None:
                self._hear(news)

    def _hear(self, news: News) -> None:
        if not news.claims:
            self._look_again()
        elif news.request_id == self._request_id():
            sent_at = self._asked_at if self._parked_at is None else self._parked_at
            sent_at = sent_at if news.asked_at_s is None else news.asked_at_s
            self._requests += 1
            self._parked_at = None
            self._start(news.claims, sent_at)
            self._look_in(PARK_AGAIN_S)

    def _held_pairs(self) -> list[tuple[str, int]]:
        return [(attempt.claim.id, fence) for fence, attempt in self._held.items()]

    def _info(self) -> WorkerInfo:
        return WorkerInfo(
            id=self.id,
            host=platform.node(),
            pid=os.getpid(),
            queues=self._queues,
            slots=self.slots,
            running=len(self._held),
            started_at_ms=self._started_at_ms,
            version=__version__,
        )


def worker_id(name: str | None) -> str:
    """Return a name that no other worker has, also of one that was given the same: `<name or host>-<random>`."""
    base = name or re.sub(r"[^\x21-\x7e]", "_", platform.node())[:40] or "worker"
    return f"{base}-{ids.new_id()[-6:]}"
