"""Garbage collection for processes that handle many small objects a second."""

import gc
from typing import Final

_OBJECTS: Final = 20_000
"""With Python's 700 the collector runs several times per claim: a quarter of a worker's time on empty jobs, and
two fifths of the API's on a submission of 10,000 jobs. Objects of jobs are freed by reference counts alone."""


def collect_less() -> None:
    """Collect less often. It saves a tenth of the time that imports take: they make many objects that stay."""
    gc.set_threshold(_OBJECTS, 20, 50)


def relax() -> None:
    """Collect less often, and exclude all existing objects."""
    gc.freeze()
    collect_less()
