"""Repeats a call while Redis does not answer: a look that takes minutes must outlast some silence."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from workron.errors import StoreUnavailable

T = TypeVar("T")
PATIENCE_S: Final = 60.0
"""Time after which a call that never succeeds ends the look."""
_PAUSE_S: Final = 0.5


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    """Return the result of a call that may run twice, repeated during an outage of at most `PATIENCE_S`."""
    gives_up_at_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await call()
        except StoreUnavailable as error:
            if not error.is_outage or time.monotonic() > gives_up_at_s:
                raise
        await asyncio.sleep(_PAUSE_S)
