"""Claim requests, one after the other; each keeps its id until it has got claims."""

from typing import Final

from workers.queue_order import Turns
from workron.models import ClaimRequest


class Requests:
    """One sequence of requests. At most one of them is under way or parked."""

    def __init__(self, worker: str, turns: Turns, incarnation: str, park_ms: int) -> None:
        self._worker = worker
        self._turns = turns
        self._incarnation = incarnation
        self._number = 1
        self.park_ms: Final = park_ms
        """How long a request that finds nothing stays parked; 0: it does not."""
        self.parked: ClaimRequest | None = None
        """The present request as it is parked; None while it is not known to be."""
        self.reserved = 0
        """Slots that the call under way may fill beyond those it frees."""
        self.open = 0
        """Most jobs that the present request may still bring, as it is under way or parked."""

    @property
    def id(self) -> str:
        return f"{self._incarnation}:{self._number}"

    def make(self, limit: int) -> ClaimRequest | None:
        """Return the present request for so many jobs; for none of them only to end its parking."""
        if limit == 0 and self.parked is None:
            return None
        self.open = max(self.open, limit)
        park_ms = self.park_ms if limit else 0
        return ClaimRequest(self._worker, self._turns.order(), limit, self.id, park_ms, begins=True)

    def served(self) -> None:
        """Go on to the next request."""
        self._number += 1
        self.parked = None
        self.open = 0
