"""What a pass of the reapers may not leave, whatever stalls there were: a lease that was over a lease ago."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tests.simulation.fake_redis import Server
from workron.redis.keys import Keys

_MORE: Final = 7
"""Where the answer of `maintain_reap` says that leases are left to look at."""


class Passes:
    """Watches the passes over leases, as long as the server's clock is right."""

    def __init__(self, server: Server, keys: Keys, lease_ms: int) -> None:
        self._server = server
        self._keys = keys
        self._lease_ms = lease_ms
        self._silent_since: dict[tuple[str, str], int] = {}

    def applied(self, answer: Sequence[Any], running: Mapping[tuple[str, str], int]) -> Iterator[str]:
        """Judge a pass by the attempts (job, fence) that still run after it, each with the end of its lease in ms.

        An attempt that was heard between two passes, and is silent again, is silent since the second one.
        """
        now_ms, before, self._silent_since = self._server.now_ms, self._silent_since, {}
        for attempt, leased_until_ms in running.items():
            if self._server.get(self._keys.heartbeat(attempt[0])) is not None:
                continue
            seen_ms = before.get(attempt, now_ms)
            since_ms = self._silent_since[attempt] = now_ms if seen_ms < leased_until_ms <= now_ms else seen_ms
            if not answer[_MORE] and now_ms > since_ms + self._lease_ms:
                yield f"{attempt[0]} is silent under fence {attempt[1]} since {since_ms}, and was not taken back"
