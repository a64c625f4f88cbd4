"""The identity of a worker: its id, and its description in every heartbeat."""

import os
import platform
import re
from collections.abc import Sequence
from typing import Final

from workron import __version__, ids
from workron.models import WorkerInfo
from workron.times import now_ms

SHOWN_JOBS: Final = 100
"""Maximum of jobs named in a heartbeat."""


class Identity:
    """One worker process. Its id is `<name or host>-<random>`: unique even among workers with the same name."""

    def __init__(self, name: str | None, queues: Sequence[str], slots: int) -> None:
        base = name or re.sub(r"[^\x21-\x7e]", "_", platform.node())[:40] or "worker"
        self.id: Final = f"{base}-{ids.new_id()[-6:]}"
        self._queues = tuple(queues)
        self._slots = slots
        self._started_at_ms = now_ms()

    def describe(self, jobs: Sequence[str], *, draining: bool) -> WorkerInfo:
        """Return its public description, with its current jobs, and whether it is draining."""
        return WorkerInfo(
            id=self.id,
            host=platform.node(),
            pid=os.getpid(),
            queues=self._queues,
            slots=self._slots,
            running=len(jobs),
            started_at_ms=self._started_at_ms,
            version=__version__,
            jobs=tuple(jobs[:SHOWN_JOBS]),
            draining=draining,
        )
