"""Limits after which a worker stops by itself: a number of jobs, or empty queues."""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from workers.refusals import Refusals
from workers.source import JobSource
from workron.errors import ApiRefuses, StoreUnavailable

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Limits:
    """When a worker stops by itself: after `max_jobs` jobs, or (`until_empty`) when all jobs have ended."""

    max_jobs: int | None = None
    until_empty: bool = False


NO_LIMITS: Final = Limits()


class Allowance:
    """How many jobs a worker may still claim. Released jobs do not count."""

    def __init__(self, most: int | None) -> None:
        self.left: float = math.inf if most is None else most

    def take(self, jobs: int) -> None:
        self.left -= jobs

    def give_back(self, jobs: int) -> None:
        self.left += jobs


async def until_empty(source: JobSource, queues: Sequence[str], idle: Callable[[], bool]) -> None:
    """Return when the worker is idle and every job of its queues has ended, on any worker.

    Jobs of other workers count, as they can be retried; so do jobs waiting for their time or for another job.
    """
    pause_s, refusals = _FIRST_PAUSE_S, Refusals("how many jobs are left")
    while True:
        if not idle():
            pause_s = _FIRST_PAUSE_S
        elif await _none_left(source, queues, refusals) and idle():
            return
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


async def _none_left(source: JobSource, queues: Sequence[str], refusals: Refusals) -> bool:
    try:
        return await source.unfinished(queues) == 0
    except ApiRefuses as error:
        await asyncio.sleep(refusals.refused(error))
        return False
    except StoreUnavailable:  # the heartbeat logs the outage
        return False
