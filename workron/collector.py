"""Garbage collection for processes that handle many small objects a second."""

import gc
from typing import Final

_OBJECTS: Final = 20_000
"""Python's 700 has the collector run several times per claim: a quarter of a worker's time on jobs that do nothing.
What a job needs goes by its reference count alone."""


def relax() -> None:
    """Collect less often, and never again look at what was made before."""
    gc.freeze()
    gc.set_threshold(_OBJECTS, 20, 20)
