"""What calls have left behind in Redis that were refused in the end: it has to be nothing.

Two things may be there: the entry of the audit log; and that a submission of several calls was given up, which is
remembered for an hour, as late calls of it must not begin it again.
"""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager

from tests.simulation.fake_redis import Server
from workron.redis.keys import Keys


class Watch:
    """Looks at all keys before and after each call of a process."""

    def __init__(self, server: Server, keys: Keys) -> None:
        self._server = server
        self._batches, self._audit = keys.batch("").encode(), keys.audit.encode()
        self.forget()

    def forget(self) -> None:
        """Begin with nothing."""
        self.calls = 0
        self.added: set[bytes] = set()
        """Keys that these calls made, and that are there."""
        self.changed: set[bytes] = set()
        """Keys that were there before a call, and had another value after it."""

    def look_only_for(self, *words: str) -> None:
        """Forget keys that are not about these: the calls also went on with what others had left to do."""
        self.changed.clear()
        self.added = {key for key in self.added if any(word.encode() in key for word in words)}

    @contextmanager
    def looking(self) -> Iterator[None]:
        before = self._values()
        yield
        after = self._values()
        self.calls += 1
        self.added = {key for key in self.added | after.keys() - before.keys() if self._stays(key)}
        self.changed |= {key for key in before.keys() & after.keys() if before[key] != after[key]}

    def _stays(self, key: bytes) -> bool:
        item = self._server.items.get(key)
        given_up = key.startswith(self._batches) and item is not None and item.expireat is not None
        return item is not None and not (given_up and item.value.get(b"state") == b"aborted")

    def _values(self) -> dict[bytes, bytes]:
        items = self._server.items.items()
        return {key: pickle.dumps(item.value) for key, item in items if key != self._audit}
