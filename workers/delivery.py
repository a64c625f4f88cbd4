"""Delivers results of a worker: repeats calls until they succeed."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from workers.outcome import refused
from workers.refusals import Refusals, send_in_parts
from workers.source import JobSource
from workers.stopping import Stopping
from workron.errors import ApiRefuses, CallRefused, StoreUnavailable
from workron.models import Claim, Claimed, ClaimRequest, Finished, Result, Verdict
from workron.models.exchange import Exchanged
from workron.runtime.logger import log
from workron.runtime.outage import Outage

AGAIN_S: Final = 0.2
_NOTHING: Final = Exchanged([], Claimed(), propagating=False)


class Delivery:
    """Delivers results and fetches claims. A rejected claim pauses all claims: `paused`."""

    def __init__(
        self, source: JobSource, worker: str, stopping: Stopping, outage: Outage, look_again: Callable[[], None]
    ) -> None:
        self.paused = False
        """Whether to claim no jobs at present."""
        self._source = source
        self._worker = worker
        self._stopping = stopping
        self._outage = outage
        self._look_again = look_again
        self._results = Refusals("results")
        self._claims = Refusals("claims")
        self._waits = Refusals("waiting for jobs")

    async def exchange(self, results: list[Result], request: ClaimRequest | None) -> Exchanged | None:
        """Report results and claim jobs; return None if the worker stops before there is a response.

        A rejected result is replaced in `results` by the failure reported instead.
        """
        while True:
            try:
                exchanged = await self._exchange(results, request)
            except StoreUnavailable as error:
                if isinstance(error, ApiRefuses) and not results:
                    self._pause(self._claims.refused(error))
                    return _NOTHING
                if self._stopping.gives_up(reporting=bool(results)):
                    return None
                await asyncio.sleep(self._trouble(error))
            else:
                if exchanged.asked:
                    self._outage.worked()
                return exchanged

    async def release(self, claims: Sequence[Claim]) -> None:
        """Release unfinished jobs. Retried during an outage, unless the worker is stopping."""
        while (error := await self._release(claims)) is not None:
            if isinstance(error, CallRefused) or self._stopping.gives_up(reporting=False):
                for claim in claims:
                    about = {"job": claim.id, "attempt": claim.attempt, "worker": self._worker}
                    log.warning("job not released, left to the reaper", error=str(error), **about)
                return
            await asyncio.sleep(self._trouble(error))
        for claim in claims:
            log.info("job released", job=claim.id, attempt=claim.attempt, worker=self._worker)

    async def _release(self, claims: Sequence[Claim]) -> StoreUnavailable | None:
        try:
            await self._source.release([(claim.id, claim.fence) for claim in claims])
        except StoreUnavailable as error:
            return error
        return None

    async def _exchange(self, results: list[Result], request: ClaimRequest | None) -> Exchanged:
        try:
            exchanged = await self._source.exchange(self._worker, results, request)
        except ApiRefuses:
            if not results:
                raise
            # The claim may be to blame: it is made again without results, which go without it.
            return replace(_NOTHING, finished=await self._report_in_parts(results))
        self._results.accepted()
        if request is not None:
            self._claims.accepted()
        return exchanged

    async def _report_in_parts(self, results: list[Result]) -> list[Finished]:
        answers = await send_in_parts(results, self._report)
        self._results.accepted()
        finished = []
        for at, answer in enumerate(answers):
            if isinstance(answer, CallRefused):
                results[at] = replace(results[at], outcome=refused(results[at].outcome, str(answer)), output=None)
                answer = await self._report_refusal(results[at])
            finished.append(answer)
        return finished

    async def _report(self, results: Sequence[Result]) -> Sequence[Finished]:
        return (await self._source.exchange(self._worker, results, None)).finished

    async def _report_refusal(self, result: Result) -> Finished:
        log.warning("api rejects a result, attempt failed", job=result.id, error=result.outcome.error)
        try:
            [finished] = await self._report([result])
        except CallRefused as error:
            log.warning("api rejects the failure too, lease will expire", job=result.id, error=str(error))
            return Finished(result.id, Verdict.LEASE_LOST, None)
        return finished

    def _trouble(self, error: StoreUnavailable) -> float:
        """Log an outage or a rejection; return the pause before the next try."""
        if isinstance(error, ApiRefuses):
            return self._results.refused(error)
        self._outage.failed(error)
        return AGAIN_S

    def waits_refused(self, error: ApiRefuses) -> float:
        """Record that a waiting request was rejected; return how long claims are paused."""
        pause_s = self._waits.refused(error)
        self._pause(pause_s)
        return pause_s

    def waits_accepted(self) -> None:
        self._waits.accepted()

    def _pause(self, seconds: float) -> None:
        if not self.paused:
            self.paused = True
            asyncio.get_running_loop().call_later(seconds, self._resume)

    def _resume(self) -> None:
        self.paused = False
        self._look_again()
