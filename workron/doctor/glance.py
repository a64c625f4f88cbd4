"""The light examination that reapers make all the time: some jobs at a glance, in turn, mended where they are found."""

from typing import Final

from workron.connection import Connection
from workron.doctor.faults import Fault
from workron.doctor.inspector import ITEMS, Inspector, text_of
from workron.keys import Keys
from workron.scripts import Scripts

_JOBS_PER_PAGE: Final = 100_000
_MOST_PAGES: Final = 5
"""Of a million jobs, each is seen once in about an hour."""


class Glance:
    """Goes round over all jobs; any number of them may."""

    def __init__(self, connection: Connection, keys: Keys, scripts: Scripts) -> None:
        self._connection = connection
        self._keys = keys
        self._scripts = scripts
        self._behind = b"-"

    async def look(self) -> list[Fault]:
        """Look at the next jobs; returns what was wrong with them, mended or not."""
        inspector = Inspector(self._scripts, mend=True)
        jobs = await self._connection.call("ZCARD", self._keys.jobs)
        for _ in range(min(1 + jobs // _JOBS_PER_PAGE, _MOST_PAGES)):
            page = await self._connection.call("ZRANGEBYLEX", self._keys.jobs, self._behind, "+", "LIMIT", 0, ITEMS)
            self._behind = b"(" + page[-1] if len(page) == ITEMS else b"-"
            await inspector.ask("job", [text_of(job) for job in page])
        return inspector.faults
