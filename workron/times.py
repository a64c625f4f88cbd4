"""Times: milliseconds since 1970 inside, RFC 3339 in the API."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache


def now_ms() -> int:
    """Return the time of this machine's clock."""
    return int(time.time() * 1000)


def redis_ms(reply: Sequence[bytes]) -> int:
    """Return the time of Redis' clock, from its reply to TIME."""
    return int(reply[0]) * 1000 + int(reply[1]) // 1000


@lru_cache(maxsize=4096)
def rfc3339(at_ms: int) -> str:
    """Return a time like `2026-03-01T09:30:00.250Z`."""
    moment = datetime.fromtimestamp(at_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03}Z"
