"""Calls that the API refuses: the one report to blame is found, the reason logged once, the pauses grow."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import structlog

from workron.errors import ApiRefuses, CallRefused

log = structlog.get_logger()

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 10.0
"""A renewed key or another setting of the API is noticed within this time."""

Report = TypeVar("Report")
Answer = TypeVar("Answer")


class Refusals:
    """Tracks whether the API accepts one kind of call."""

    def __init__(self, call: str) -> None:
        self._call = call
        self._said = ""
        self._pause_s = FIRST_PAUSE_S

    def refused(self, error: ApiRefuses) -> float:
        """Log a reason that is new; returns how long to wait before the next try, longer each time."""
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
    """Send reports of which one is to blame that they were refused together: halved until it is found.

    Returns an answer or the refusal for each. Raises the refusal if a call without any report is refused too.
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
