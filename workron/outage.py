"""An outage of Redis is logged once when it starts and once when it ends."""

import time

import structlog

from workron.errors import StoreUnavailable

log = structlog.get_logger()


class Outage:
    """Tracks whether the store answers, for one process."""

    def __init__(self) -> None:
        self._since: float | None = None

    def failed(self, error: StoreUnavailable) -> None:
        if self._since is None:
            self._since = time.monotonic()
            log.warning("redis away, trying again", error=str(error))

    def worked(self) -> None:
        if self._since is not None:
            log.info("redis back", away_s=round(time.monotonic() - self._since, 1))
            self._since = None
