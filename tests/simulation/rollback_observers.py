"""Whoever saw what a rollback has undone must tell of it."""

from collections.abc import Callable

from tests.simulation.fake_redis import Server
from tests.simulation.timeline import Process
from workron.redis.keys import Keys


class Witnesses:
    """The reapers, and the highest pass that each has seen.

    A rollback has to be reported where every reaper has seen a pass that is undone: then whoever makes the next pass
    notices. A reaper that starts afterwards has seen nothing; where there is one, nothing is expected.
    """

    def __init__(self, server: Server, keys: Keys) -> None:
        self._server = server
        self._keys = keys
        self._seen: dict[Process, Callable[[], int]] = {}
        self._expected_of: frozenset[Process] = frozenset()
        self._since_ms = 0

    def enter(self, reaper: Process, seen: Callable[[], int]) -> None:
        self._seen[reaper] = seen

    def rolled_back(self) -> None:
        """The server is back with an older state."""
        passes, self._since_ms = int(self._meta(b"passes")), self._server.now_ms
        alive = self._alive()
        self._expected_of = alive if all(self._seen[reaper]() > passes for reaper in alive) else frozenset()

    def unreported(self) -> list[str]:
        """Return in words the last rollback, if nobody has told of it although all could."""
        told = int(self._meta(b"rolled_back_at")) >= self._since_ms
        if told or not self._expected_of or self._alive() != self._expected_of:
            return []
        return [f"the rollback at {self._since_ms} ms was not reported"]

    def _alive(self) -> frozenset[Process]:
        return frozenset(reaper for reaper in self._seen if reaper.alive)

    def _meta(self, name: bytes) -> bytes:
        return (self._server.get(self._keys.meta) or {}).get(name) or b"0"
