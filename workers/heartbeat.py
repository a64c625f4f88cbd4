"""Heartbeats: one call for all running jobs and the worker itself, independent of what the commands do."""

import asyncio
from collections.abc import Callable, Sequence

from workers.executor import Executor
from workers.guardian import boottime_s
from workers.refusals import Refusals, send_in_parts
from workers.source import JobSource
from workron.durations import to_seconds
from workron.errors import ApiRefuses, CallRefused, StoreUnavailable
from workron.models import Beat, WorkerInfo
from workron.models.workers import Beats, Drain
from workron.runtime.logger import log
from workron.runtime.outage import Outage
from workron.runtime.signals import happens


class Heartbeat:
    """Renews leases every `every_s` seconds, and acts on what comes back: cancels, lost leases, requests to drain."""

    def __init__(
        self,
        source: JobSource,
        executor: Executor,
        every_s: float,
        info: Callable[[], WorkerInfo],
        held: Callable[[], Sequence[tuple[str, int]]],
        drain: Callable[[Drain], None],
        outage: Outage,
    ) -> None:
        self._source = source
        self._executor = executor
        self._every_s = every_s
        self._info = info
        self._held = held
        self._drain = drain
        self._outage = outage
        self._refusals = Refusals("heartbeats")
        self._hurried = asyncio.Event()
        self._answered_at_s: float | None = None

    async def problem(self) -> str | None:
        """Return why the worker is unhealthy: no heartbeat was answered for a lease. None if it is healthy."""
        if self._answered_at_s is None:
            return "no heartbeat has been answered yet"
        silent_s = boottime_s() - self._answered_at_s
        if silent_s <= to_seconds(self._source.lease_ms):
            return None
        return f"no heartbeat has been answered for {silent_s:.0f} s"

    async def run(self) -> None:
        while True:
            self._hurried.clear()
            try:
                await self.tick()
                self._outage.worked()
                pause_s = self._every_s
                self._refusals.accepted()
            except ApiRefuses as error:
                pause_s = min(self._every_s, self._refusals.refused(error))
            except StoreUnavailable as error:
                self._outage.failed(error)
                pause_s = min(self._every_s, 0.5)
            await happens(self._hurried, within_s=pause_s)

    def hurry(self) -> None:
        """Send the next heartbeat now."""
        self._hurried.set()

    async def tick(self) -> Beats:
        """Send one heartbeat. Leases count from before it was sent."""
        held = self._held()
        sent_at = boottime_s()
        if self._executor.unanswered_since_s is None:
            self._executor.unanswered_since_s = sent_at
        answer = await self._beat(held)
        beats = answer.attempts
        kept = [fence for _, fence in held if fence in beats and beats[fence] is not Beat.LOST]
        self._executor.renew(kept, sent_at + to_seconds(self._source.lease_ms))
        self._executor.unanswered_since_s = None
        self._answered_at_s = boottime_s()
        for job_id, fence in held:
            attempt = self._executor.attempts.get(fence)
            if attempt is None or fence not in beats:
                continue  # it ended meanwhile, or was refused
            if beats[fence] is Beat.LOST:
                log.warning("lease lost", job=job_id, attempt=attempt.claim.attempt, worker=self._info().id)
                attempt.lose()
            elif beats[fence] is Beat.CANCEL:
                attempt.cancel()
        if answer.drain is not None:
            self._drain(answer.drain)
        return answer

    async def _beat(self, held: Sequence[tuple[str, int]]) -> Beats:
        """Send it; attempts rejected by the API are stopped as failed, and missing in the response."""
        answers = []

        async def send(part: Sequence[tuple[str, int]]) -> list[Beat]:
            answers.append(await self._source.heartbeat(self._info(), part))
            return [answers[-1].attempts[fence] for _, fence in part]

        try:
            await send(held)
        except CallRefused:
            if not held:
                raise
            for (_, fence), state in zip(held, await send_in_parts(held, send), strict=True):
                attempt = self._executor.attempts.get(fence)
                if isinstance(state, CallRefused) and attempt is not None:
                    attempt.refuse(str(state))
        beats = {fence: beat for answer in answers for fence, beat in answer.attempts.items()}
        return Beats(beats, answers[-1].drain)
