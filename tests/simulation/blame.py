"""No job loses an attempt, or is blamed for the loss of one, because Redis was away or a clock has jumped.

For runs in which nothing else goes wrong. A job whose command an outage has stopped is given back, with its attempt.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

Row = Mapping[bytes, bytes]
_LOST: Final = b"worker_lost"
_REFUSED: Final = b"was refused"
"""Part of the error of an attempt whose report the API has refused."""


class Blame:
    """Counts the attempts of each run that failed by themselves; yields in words what is wrong with all others."""

    def __init__(self) -> None:
        self._failed: Counter[tuple[str, int]] = Counter()

    def left(self, job_id: str, run: int, fields: Row, *, taken: bool, loud: bool) -> Iterator[str]:
        """Judge that a job runs no more. `taken`: a reaper did it; `loud`: its output is too large for a proxy."""
        if taken or fields.get(b"reason") == _LOST:
            yield f"{job_id} has lost an attempt, and its worker was alive"
        elif b"reason" in fields:
            self._failed[job_id, run] += 1
        if _REFUSED in fields.get(b"error", b"") and not loud:
            yield f"{job_id} has failed for what another one reported"

    def started(self, job_id: str, run: int, row: Row) -> Iterator[str]:
        """Judge the number of an attempt that starts."""
        attempt, failed = int(row[b"attempts"]), self._failed[job_id, run]
        if attempt != failed + 1:
            yield f"{job_id} starts its attempt {attempt}, and {failed} have failed"
        if b"losses" in row:
            yield f"{job_id} is blamed for the loss of a worker that was alive"
