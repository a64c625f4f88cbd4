"""The order in which a worker serves its queues."""

import random
from collections.abc import Sequence
from typing import Final


class Turns:
    """Queues given as names are served strictly in their order, as `name:weight` more or less often first.

    With weights no queue starves: each claim has its own order, in which a queue of weight 4 precedes one of
    weight 1 four times out of five.
    """

    def __init__(self, queues: Sequence[str]) -> None:
        parts = [queue.partition(":") for queue in queues]
        self.names: Final = tuple(name for name, _, _ in parts)
        self._weights = [float(weight or 1) for _, _, weight in parts]
        self._weighted = any(colon for _, colon, _ in parts)

    def order(self) -> tuple[str, ...]:
        """Return the queues, the first to be served in front."""
        if not self._weighted:
            return self.names
        # Sorted by such draws, each stands first as often as its weight says, and so on for the rest.
        drawn = {
            name: random.random() ** (1 / weight)  # noqa: S311 - no secret
            for name, weight in zip(self.names, self._weights, strict=True)
        }
        return tuple(sorted(drawn, key=drawn.__getitem__, reverse=True))
