"""Suspected poison jobs: workers were lost with them repeatedly, so they run alone."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeVar

from workers.shortage import AGAIN_S
from workron.models import Claim

Result = TypeVar("Result")

Begin = Callable[[str, int], Awaitable[bool]]
"""Reports the start of a suspect's command (job and fence); returns whether it may start."""


async def _begin(_job_id: str, _fence: int) -> bool:
    return True


class Attempt(Protocol):
    """The part of an attempt used here: see `workers.attempt`."""

    claim: Claim

    @property
    def started(self) -> bool: ...
    @property
    def ending(self) -> bool: ...
    @property
    def wants_to_be_alone(self) -> bool: ...
    async def wait_while(self, holds: Callable[[], bool]) -> None: ...
    async def unless_ended(self, work: Awaitable[Result]) -> asyncio.Future[Result]: ...
    async def pause(self, seconds: float) -> None: ...
    def lose(self) -> None: ...
    def lose_if_late(self) -> None: ...


class PoisonJobs:
    """The suspects among a worker's attempts, in their order."""

    def __init__(self, attempts: Mapping[int, Attempt]) -> None:
        self.begin: Begin = _begin
        self._attempts = attempts
        self._suspects: list[Attempt] = []

    def add(self, attempt: Attempt) -> None:
        self._suspects.append(attempt)

    def remove(self, attempt: Attempt) -> None:
        self._suspects.remove(attempt)

    def keep_clear(self) -> bool:
        """Whether to start nothing else at present."""
        return any(suspect.wants_to_be_alone for suspect in self._suspects)

    async def turn(self, attempt: Attempt) -> None:
        """Wait, up to a limit, until no other command is running: a crash can't affect neighbours then, or vice versa.

        The loss of this worker counts against the job only after it has begun.
        """
        await attempt.wait_while(lambda: self._is_not_alone(attempt))
        while not attempt.ending:
            told = await attempt.unless_ended(self.begin(attempt.claim.id, attempt.claim.fence))
            if told.cancelled():
                return
            if told.exception() is None:
                if not told.result():
                    attempt.lose()
                return
            await attempt.pause(AGAIN_S)  # the heartbeat tells of the outage
            attempt.lose_if_late()

    def _is_not_alone(self, attempt: Attempt) -> bool:
        others = (other for other in self._attempts.values() if other is not attempt)
        return self._suspects[0] is not attempt or any(other.started for other in others)
