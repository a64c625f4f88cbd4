"""The lock of a rebuild: Redis refuses all other calls that change something (`lua/lib/rebuild_lock.lua`)."""

import time
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from workron.doctor.faults import Ask, bytes_of
from workron.doctor.patience import patiently
from workron.durations import to_ms
from workron.errors import StoreBroken
from workron.redis.scripts import Arg, Scripts, UnknownReply

T = TypeVar("T")
_WRITES: Final = 200
"""Commands of one call."""
_NOTHING: Final[Ask] = ("TIME",)


class RebuildLock:
    """A lock that lasts `lease_s`, unless the rebuild renews it."""

    def __init__(self, scripts: Scripts, token: str, lease_s: float) -> None:
        self._scripts = scripts
        self._token = token
        self._lease_s = lease_s
        self._held_at_s = 0.0
        self._step = 0

    async def acquire(self) -> None:
        await self._call(self._lease_s, ())

    async def renew(self) -> None:
        """Renew the lock if it is time."""
        if time.monotonic() - self._held_at_s > self._lease_s / 6:
            await self._call(self._lease_s, [_NOTHING])

    async def write(self, commands: Iterable[Ask]) -> None:
        for page in pages(commands, _WRITES):
            await self._call(self._lease_s, page)

    async def release(self) -> None:
        await self._call(0, ())

    async def _call(self, lease_s: float, commands: Iterable[Ask]) -> None:
        """Write with a number of its own, by which a repeated call is recognized: it writes nothing a second time."""
        self._step += 1
        call = partial(self._scripts.doctor_rebuild, self._token, to_ms(lease_s), self._step, flat(commands))
        match await patiently(call):
            case [b"TOO_LATE", 0]:
                raise StoreBroken("the rebuild took so long between two writes that others went on: run it again")
            case [b"TOO_LATE", _]:
                raise StoreBroken("another rebuild is under way, or has died less than a minute ago")
            case [b"REBUILDING"]:
                pass
            case reply:
                raise UnknownReply("doctor_rebuild", reply)
        self._held_at_s = time.monotonic()


def pages(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while page := list(islice(rest, size)):
        yield page


def flat(commands: Iterable[Ask]) -> list[Arg]:
    """Return commands in the form that scripts take: the number of its words, then the words."""
    return [word for command in commands for word in (len(command), *packed(command))]


def packed(command: Ask) -> list[Arg]:
    return [bytes_of(word) if isinstance(word, str) else word for word in command]
