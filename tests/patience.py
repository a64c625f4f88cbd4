"""How long tests wait for a condition: on a machine that has more to do than cores, for as much longer."""

import os
import time


def slowness() -> float:
    """Return how many processes want each core, by the mean of the last minute; at least 1."""
    return max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


class Patience:
    """A time to wait for something, of which a second on a busy machine uses up less."""

    def __init__(self, within_s: float) -> None:
        self._left_s = within_s
        self._looked_s = time.monotonic()

    @property
    def is_over(self) -> bool:
        now_s = time.monotonic()
        self._left_s -= (now_s - self._looked_s) / slowness()
        self._looked_s = now_s
        return self._left_s <= 0
