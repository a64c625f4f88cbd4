"""Arguments and results of a worker's calls, to Redis or to the API."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from workron.models import Claimed, Finished

MAX_RESULTS: Final = 150
"""Maximum of results, and of claims, in one call."""
MAX_BEATS: Final = 500
"""Maximum of attempts renewed in one call."""


@dataclass(frozen=True, slots=True)
class Exchanged:
    """The response to results and a claim. `propagating`: dependents wait for `Maintenance.propagate`."""

    finished: list[Finished]
    claimed: Claimed
    propagating: bool
    asked: bool = True
    """False: nothing had to be sent, so it says nothing about the server."""


class Kept(StrEnum):
    """The outcome of storing output."""

    STORED = "stored"
    LOST = "lost"
    """The attempt is no longer running."""
    FULL = "full"
    """Redis has no room: send it again later."""
