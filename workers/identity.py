"""Who a worker is: its id, and what it says of itself with every heartbeat."""

import os
import platform
import re
import time
from collections.abc import Sequence
from typing import Final

from workron import __version__, ids
from workron.models import WorkerInfo

SHOWN_JOBS: Final = 100
"""Most jobs that a heartbeat names."""


class Identity:
    """One worker process. Its id is `<name or host>-<random>`: no other has it, also of those given the same name."""

    def __init__(self, name: str | None, queues: Sequence[str], slots: int) -> None:
        base = name or re.sub(r"[^\x21-\x7e]", "_", platform.node())[:40] or "worker"
        self.id: Final = f"{base}-{ids.new_id()[-6:]}"
        self._queues = tuple(queues)
        self._slots = slots
        self._started_at_ms = int(time.time() * 1000)

    def describe(self, jobs: Sequence[str], *, draining: bool) -> WorkerInfo:
        """Return what others may know, with the jobs that it holds now, and whether it is about to go."""
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
