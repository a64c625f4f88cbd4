"""Times in the API's format."""

from datetime import UTC, datetime
from functools import lru_cache


@lru_cache(maxsize=4096)
def rfc3339(at_ms: int) -> str:
    """Return a time like `2026-03-01T09:30:00.250Z`."""
    moment = datetime.fromtimestamp(at_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03}Z"
