"""What a worker's calls are made of and answered with, whichever way they go: to Redis or to the API."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from workron.models import Claim, Claimed, Finished

MAX_RESULTS: Final = 150
"""Results, and claims, in one call."""
MAX_BEATS: Final = 500
"""Attempts renewed in one call."""


@dataclass(frozen=True, slots=True)
class Exchanged:
    """The answer to results and a claim. `propagating`: dependents wait for `Upkeep.propagate`."""

    finished: list[Finished]
    claimed: Claimed
    propagating: bool


@dataclass(frozen=True, slots=True)
class News:
    """What a parked request is told: its claims, or none of them: look for yourself."""

    worker: str
    request_id: str
    claims: tuple[Claim, ...] = ()
    asked_at_s: float | None = None
    """When the request was sent that got them, in seconds as by `boottime_s`; None: as the worker knows itself."""


class Kept(StrEnum):
    """What became of a piece of output."""

    STORED = "stored"
    LOST = "lost"
    """The attempt does not run any more."""
    FULL = "full"
    """Redis has no room: send it again later."""
