"""Garbage collection for processes that handle many small objects a second."""

import gc
from typing import Final

_OBJECTS: Final = 20_000
"""At Python's 700 the collector runs several times per claim: a quarter of a worker's time on jobs that do nothing, and
two fifths of the API's on a submission of 10,000 jobs. What a job needs goes by its reference count alone."""


def relax() -> None:
    """Collect less often, and never again look at what was made before."""
    gc.freeze()
    gc.set_threshold(_OBJECTS, 20, 50)
