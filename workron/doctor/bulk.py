"""Checks jobs and members of indexes in bulk, by scripts: nearly all are simple and right.

A script only finds what is certainly right. The rules of `places.py` judge everything else, one by one.
"""

import re
from collections.abc import Sequence
from functools import partial
from typing import Final

from workron.doctor.faults import text_of
from workron.doctor.patience import patiently
from workron.doctor.reading import Reader
from workron.doctor.rebuild_lock import pages
from workron.ids import is_id
from workron.redis.keys import Keys
from workron.redis.scripts import Scripts

_JOBS: Final = 250
"""Jobs per call: some 3 ms of the server."""
_INDEX: Final = re.compile(r"(?:jobs|queue:(?P<queue>[^:]+)):(?P<status>blocked|done|failed|cancelled|skipped)")
_INDEXES: Final = {"jobs": ("", ""), "leases": ("running", ""), "due": ("scheduled", "")}


class Bulk:
    """Each method returns what must be checked one by one."""

    def __init__(self, keys: Keys, scripts: Scripts, reader: Reader) -> None:
        self._keys = keys
        self._scripts = scripts
        self._reader = reader

    async def jobs(self, ids: Sequence[str]) -> set[str]:
        """Return the jobs that are not simple, or not in one of their places."""
        others: set[str] = set()
        for page in pages(ids, _JOBS):
            await self._reader.renew()
            answer = await patiently(partial(self._scripts.doctor_jobs, " ".join(page)))
            first, *lists = map(text_of, answer)
            others.update(first.split())
            for queue, priority, pending in zip(*[iter(lists)] * 3, strict=True):
                others.update(await self._reader.missing(self._keys.pending(queue, priority), pending.split()))
        return others

    async def members(self, index: str, members: Sequence[str]) -> list[str]:
        """Return the members whose jobs may have no place in the index; all of them if it is none of jobs."""
        match = _INDEX.fullmatch(index)
        about = (match["status"], match["queue"] or "") if match else _INDEXES.get(index)
        if about is None:
            return list(members)
        await self._reader.renew()
        ids = [member for member in members if is_id(member)]
        others = text_of(await patiently(partial(self._scripts.doctor_members, " ".join(ids), *about)))
        return [*others.split(), *(member for member in members if not is_id(member))]
