"""Logs an outage of Redis, or of the API, once when it starts and once when it ends."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from workron.errors import ApiAway, StoreBroken, StoreUnavailable
from workron.runtime.logger import log
from workron.runtime.signals import happens

_T = TypeVar("_T")
_ENDS: Final = {
    "api unavailable": "api available",
    "redis unavailable": "redis available",
    "redis returns errors": "redis recovered",
}
_AGAIN_S: Final = 0.5

_ECHO_S: Final = 6.0
"""Failures this soon after an outage may belong to calls sent during it; they don't start a new outage."""


class Outage:
    """Tracks the availability of the store, for one process."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._ended_at: float | None = None
        self._what = "redis unavailable"

    def failed(self, error: StoreUnavailable) -> None:
        now = time.monotonic()
        if self._since is None and (self._ended_at is None or now - self._ended_at > _ECHO_S):
            self._since = now
            self._what = _what_is_wrong(error)
            log.warning(f"{self._what}, retrying", error=str(error))

    def worked(self) -> None:
        if self._since is not None:
            self._ended_at = time.monotonic()
            away_s = round(self._ended_at - self._since, 1)
            log.info(_ENDS[self._what], away_s=away_s)
            self._since = None


def _what_is_wrong(error: StoreUnavailable) -> str:
    if isinstance(error, ApiAway):
        return "api unavailable"
    return "redis returns errors" if isinstance(error, StoreBroken) else "redis unavailable"


async def outlast(stopping: asyncio.Event, attempt: Callable[[], Awaitable[_T]]) -> _T | None:
    """Return the result of the attempt, retried during an outage; None after `stopping`.

    Rejections and errors are raised at once: a retry would not help.
    """
    outage = Outage()
    while not stopping.is_set():
        try:
            answer = await attempt()
        except StoreUnavailable as error:
            if not error.is_outage:
                raise
            outage.failed(error)
        else:
            outage.worked()
            return answer
        await happens(stopping, within_s=_AGAIN_S)
    return None
