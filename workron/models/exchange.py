"""What a worker's calls are made of and answered with, whichever way they go: to Redis or to the API."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from workron.models import Claimed, Finished

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


class Kept(StrEnum):
    """What became of a piece of output."""

    STORED = "stored"
    LOST = "lost"
    """The attempt does not run any more."""
    FULL = "full"
    """Redis has no room: send it again later."""
