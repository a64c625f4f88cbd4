"""Values of arrays: sent after their submission was checked, discarded if it is not stored in the end.

A call that would store an array returns VALUES until its values are there. So a rejected submission, or the repeat of a
stored one, costs Redis nothing, however large its values are.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, Self

from workron.errors import GivenUp, StoreFull, StoreUnavailable
from workron.models import NewJob
from workron.redis.scripts import Scripts, UnknownReply
from workron.runtime.async_tools import Afterwards
from workron.store.encode import MAX_BYTES

_PER_CALL: Final = 5_000
_DISCARDED_PER_CALL: Final = 100
_UNTIL_STORED_MS: Final = 300_000
"""Lifetime of values whose submitter died before it stored their job."""
_TRIES: Final = 3
"""Maximum of VALUES replies per call: repeated only if values expired, or a concurrent repeat discarded them."""


class ArrayValues:
    """The values of the arrays of one submission; discarded if it is not stored."""

    def __init__(self, scripts: Scripts, jobs: Sequence[NewJob], afterwards: Afterwards) -> None:
        self._scripts = scripts
        self._afterwards = afterwards
        self._of = {job.id: job.array.values for job in jobs if job.array and job.array.values is not None}
        self._sent: set[str] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Discard values sent for jobs that are not stored."""
        if self._sent:
            await self._afterwards.do(self._discard_quietly(), error)

    async def call(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make a call, repeat it after sending the values it requests, and return its final reply."""
        for _ in range(_TRIES):
            match await call():
                case [b"VALUES", *missing]:
                    for job_id in missing:
                        await self._send(job_id.decode())
                case reply:
                    return reply
        raise GivenUp("the values of an array were lost repeatedly before it was stored")

    async def _send(self, job_id: str) -> None:
        """Store the values of a job's array, in calls of bounded work."""
        self._sent.add(job_id)
        offset = 0
        for page in _pages(self._of[job_id]):
            match await self._scripts.array_values(job_id, offset, _UNTIL_STORED_MS, page):
                case [b"FULL"]:
                    raise StoreFull("Redis has no memory left for new work", retry_after_s=5.0)
                case [b"KEPT"]:
                    offset += len(page)
                case reply:
                    raise UnknownReply("array_values", reply)

    async def _discard_quietly(self) -> None:
        """Discard values sent for jobs that are not stored; if Redis is unavailable, they expire by themselves."""
        sent = list(self._sent)
        with suppress(StoreUnavailable):
            for start in range(0, len(sent), _DISCARDED_PER_CALL):
                await self._scripts.array_discard(sent[start : start + _DISCARDED_PER_CALL])


def _pages(values: Sequence[str]) -> Iterator[list[str]]:
    page: list[str] = []
    size = 0
    for value in values:
        if page and (len(page) == _PER_CALL or size + len(value) > MAX_BYTES // 4):
            yield page
            page, size = [], 0
        page.append(value)
        size += len(value)
    yield page
