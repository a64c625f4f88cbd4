"""Calls rejected by the API: finds the offending report, logs the reason once, backs off."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from workron.errors import ApiRefuses, CallRefused
from workron.runtime.logger import log

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 10.0
"""Maximum pause: a renewed key or another setting of the API is noticed within this time."""

Report = TypeVar("Report")
Answer = TypeVar("Answer")


class Refusals:
    """Tracks whether the API accepts one kind of call."""

    def __init__(self, call: str) -> None:
        self._call = call
        self._said = ""
        self._pause_s = FIRST_PAUSE_S

    def refused(self, error: ApiRefuses) -> float:
        """Log a new reason; return the pause before the next try, longer each time."""
        if self._said != str(error):
            self._said = str(error)
            log.warning("api rejects a call, retrying", call=self._call, error=str(error))
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        return pause_s

    def accepted(self) -> None:
        if self._said:
            log.info("api accepts the call again", call=self._call)
            self._said, self._pause_s = "", FIRST_PAUSE_S


async def send_in_parts(
    reports: Sequence[Report], send: Callable[[Sequence[Report]], Awaitable[Sequence[Answer]]]
) -> list[Answer | CallRefused]:
    """Send rejected reports in halves until the offending one is found.

    Return a response or the rejection for each. Raise the rejection if a call without reports is rejected too.
    """
    await send(())
    return await _halved(reports, send)


async def _halved(
    reports: Sequence[Report], send: Callable[[Sequence[Report]], Awaitable[Sequence[Answer]]]
) -> list[Answer | CallRefused]:
    try:
        return list(await send(reports))
    except CallRefused as error:
        if len(reports) == 1:
            return [error]
    half = len(reports) // 2
    return await _halved(reports[:half], send) + await _halved(reports[half:], send)
