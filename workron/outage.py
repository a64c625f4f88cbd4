"""An outage of Redis, or of the API before it, is logged once when it starts and once when it ends."""

import time

import structlog

from workron.errors import ApiAway, StoreUnavailable

log = structlog.get_logger()


class Outage:
    """Tracks whether the store answers, for one process."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._of_api = False

    def failed(self, error: StoreUnavailable) -> None:
        if self._since is None:
            self._since = time.monotonic()
            self._of_api = isinstance(error, ApiAway)
            log.warning("api away, trying again" if self._of_api else "redis away, trying again", error=str(error))

    def worked(self) -> None:
        if self._since is not None:
            away_s = round(time.monotonic() - self._since, 1)
            log.info("api back" if self._of_api else "redis back", away_s=away_s)
            self._since = None
