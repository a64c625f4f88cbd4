"""Sequential claim requests; each keeps its id until it has received claims."""

from typing import Final

from workers.queue_order import Turns
from workron.models import ClaimRequest


class Requests:
    """A sequence of requests. At most one of them is open or parked."""

    def __init__(self, worker: str, turns: Turns, incarnation: str, park_ms: int) -> None:
        self._worker = worker
        self._turns = turns
        self._incarnation = incarnation
        self._number = 1
        self.park_ms: Final = park_ms
        """How long a request without a result stays parked; 0: not at all."""
        self.parked: ClaimRequest | None = None
        """The current request if it is known to be parked, otherwise None."""
        self.reserved = 0
        """Slots that the open call may fill in addition to those it frees."""
        self.open = 0
        """Maximum of jobs that the current request may still return."""

    @property
    def id(self) -> str:
        return f"{self._incarnation}:{self._number}"

    def make(self, limit: int) -> ClaimRequest | None:
        """Return the current request with this limit; limit 0 only unparks it."""
        if limit == 0 and self.parked is None:
            return None
        self.open = max(self.open, limit)
        park_ms = self.park_ms if limit else 0
        return ClaimRequest(self._worker, self._turns.order(), limit, self.id, park_ms, begins=True)

    def served(self) -> None:
        """Continue with the next request."""
        self._number += 1
        self.parked = None
        self.open = 0
