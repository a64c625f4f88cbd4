"""The worker: claims jobs, runs their commands, reports how they ended. One asyncio process, `slots` commands at once.

One call carries results to the store and new claims back (`_exchange`); what ends while it is under way goes with the
next one. With free slots and nothing to do the worker waits for a wake-up; it never polls faster than `LOOK_S`.
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
from workron.attempts import MAX_RESULTS
from workron.connection import BLOCK_S
from workron.errors import StoreUnavailable
from workron.models import Claim, Claimed, ClaimRequest, Finished, Outcome, Reason, Result, Verdict, WorkerInfo
from workron.outage import Outage
from workron.settings import Settings
from workron.tasks import end

LOOK_S: Final = 15.0
"""A waiting worker looks for work so often without being woken: a wake-up dies with the worker that took it."""
PATIENCE_S: Final = 15.0
"""How long after the grace a stopping worker tries to deliver results while Redis is away."""
FEW_SLOTS: Final = 16
"""So many slots are filled by one claim."""
MAX_OUTPUT: Final = 1_000_000
"""Bytes of output in one call."""

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
        self._incarnation = ids.new_id()
        self._requests = 0
        self._held: dict[int, Attempt] = {}
        """All that is claimed and not yet reported, by fence; ended attempts too: their leases still count."""
        self._ended: list[tuple[Attempt, Outcome]] = []
        self._look = True
        """Whether there may be work for free slots."""
        self._due_timer: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._hungry = asyncio.Event()
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
            self._wait_for_work(),
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
            await self._release_stopped()
            if self._stopping and not self._held:
                return
            batch = self._take_ended()
            free = 0 if self._stopping else self.slots - len(self._held)
            if batch or (free > 0 and self._look):
                await self._exchange(batch, free)
            else:
                await self._wait(hungry=free > 0)

    async def _wait(self, *, hungry: bool) -> None:
        if hungry:
            self._hungry.set()
        await self._changed.wait()
        self._hungry.clear()

    async def _exchange(self, batch: Sequence[tuple[Attempt, Outcome]], free: int) -> None:
        """Report results and claim for the slots that are free then: one call, repeated until it is answered."""
        results = [Result(a.claim.id, a.claim.fence, outcome, a.output.take()) for a, outcome in batch]
        wanted = 0 if self._stopping else min(free + len(batch), self._share)
        request = self._request(wanted) if wanted > 0 else None
        sent_at = boottime_s()  # the lease counts from the first try: its claims may have been made then
        while True:
            try:
                exchanged = await self._source.exchange(self.id, results, request)
                break
            except StoreUnavailable as error:
                self._outage.failed(error)
                if self._gives_up(batch):
                    self._forget(batch)
                    return
                await asyncio.sleep(0.2)
        self._outage.worked()
        self._forget(batch)
        for (attempt, outcome), finished in zip(batch, exchanged.finished, strict=True):
            self._log_end(attempt, outcome, finished)
        await self._start(exchanged.claimed, wanted, sent_at)

    def _gives_up(self, batch: Sequence[tuple[Attempt, Outcome]]) -> bool:
        """Whether to stop without Redis: at once with nothing to report, else some time after the grace."""
        return self._stopping and (self._hurried or not batch or time.monotonic() > self._patient_until)

    def _request(self, limit: int) -> ClaimRequest:
        self._requests += 1
        return ClaimRequest(self.id, self._queues, limit, f"{self._incarnation}:{self._requests}")

    async def _start(self, claimed: Claimed, wanted: int, sent_at: float) -> None:
        """Start what was claimed, and note whether and when to look for more."""
        if wanted > 0:
            self._look = claimed.more or len(claimed.claims) == wanted
            self._look_when_due(claimed.next_due_in_ms)
        deadline = sent_at + self._source.lease_ms / 1000
        if claimed.claims and (self._stopping or boottime_s() >= deadline):
            await self._release(claimed.claims)
            return
        for claim in claimed.claims:
            self._run_one(claim, deadline)
        if claimed.claims and deadline - boottime_s() < self._source.lease_ms / 2000:
            await self._heartbeat.renew_now()  # the call took long: the next heartbeat could come too late

    def _look_when_due(self, due_in_ms: int | None) -> None:
        if self._due_timer is not None:
            self._due_timer.cancel()
            self._due_timer = None
        if due_in_ms is not None:
            self._due_timer = asyncio.get_running_loop().call_later(due_in_ms / 1000, self._look_again)

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

    async def _release_stopped(self) -> None:
        """Give back the jobs whose commands were stopped because the worker goes."""
        stopped = [(attempt, outcome) for attempt, outcome in self._ended if attempt.stopped]
        if stopped:
            self._ended = [pair for pair in self._ended if pair not in stopped]
            self._forget(stopped)
            await self._release([attempt.claim for attempt, _ in stopped])

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

    async def _wait_for_work(self) -> None:
        """Whenever slots are free and nothing is there, wait for a wake-up; one that comes too late is passed on."""
        looked_at = time.monotonic()
        while True:
            await self._hungry.wait()
            try:
                woken = await self._source.wait_for_work(self._queues, BLOCK_S)
                if woken and not self._hungry.is_set() and not self._wants_more():
                    await self._source.pass_on(self._queues)
                elif woken or time.monotonic() - looked_at >= LOOK_S:
                    looked_at = time.monotonic()
                    self._hungry.clear()
                    self._look_again()
            except StoreUnavailable as error:
                self._outage.failed(error)
                await asyncio.sleep(0.5)
                self._look_again()

    def _wants_more(self) -> bool:
        return not self._stopping and len(self._held) < self.slots

    def _look_again(self) -> None:
        self._look = True
        self._changed.set()

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
