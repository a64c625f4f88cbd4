"""Receives cancels immediately, also of jobs about to start."""

import asyncio
from collections.abc import Callable
from typing import Final

from workers.attempt import Attempt
from workers.executor import Executor
from workers.refusals import Refusals
from workers.source import JobSource
from workron.errors import ApiRefuses, StoreUnavailable
from workron.runtime.logger import log

_AGAIN_S: Final = 1.0
_MOST_KEPT: Final = 100
"""Maximum of remembered cancels of unknown attempts."""


class Cancels:
    """Stops the commands of one worker's cancelled jobs. It may miss one: heartbeats report them, too."""

    def __init__(self, source: JobSource, executor: Executor, worker: str, hurry: Callable[[], None]) -> None:
        self._source = source
        self._executor = executor
        self._worker = worker
        self._hurry = hurry
        self._refusals = Refusals("cancels")
        self._early: dict[int, str] = {}
        """Jobs of unknown attempts by fence: the claim has not arrived yet, or the attempt has ended."""

    async def run(self) -> None:
        while True:
            try:
                async for worker, job_id, fence in self._source.cancels():
                    self._refusals.accepted()
                    if worker == self._worker:
                        self._hear(job_id, fence)
            except ApiRefuses as error:
                await asyncio.sleep(self._refusals.refused(error))
            except StoreUnavailable:
                await asyncio.sleep(_AGAIN_S)

    def begun(self, attempt: Attempt) -> None:
        """Stop a new attempt whose cancel arrived before it."""
        if self._early and self._early.pop(attempt.claim.fence, None) is not None:
            self._cancel(attempt)

    def _hear(self, job_id: str, fence: int) -> None:
        attempt = self._executor.attempts.get(fence)
        if not job_id:
            self._hurry()
        elif attempt is not None:
            self._cancel(attempt)
        else:
            if len(self._early) >= _MOST_KEPT:
                del self._early[next(iter(self._early))]
            self._early[fence] = job_id

    def _cancel(self, attempt: Attempt) -> None:
        log.info("cancelling job", job=attempt.claim.id, attempt=attempt.claim.attempt, worker=self._worker)
        attempt.cancel()
