"""Counts jobs from their hashes, exactly, on a running system.

Jobs are read in pages. With each page come the jobs that have moved since the page before, according to the stream
`events`. The tally is therefore always the state of one moment. A hash of counts is read at such a moment.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from workron.doctor.faults import Ask, text_of
from workron.doctor.patience import patiently
from workron.doctor.places import LIVE, STATUSES
from workron.doctor.progress import Say, silent
from workron.doctor.rebuild_lock import flat
from workron.redis.connection import Connection
from workron.redis.keys import Keys
from workron.redis.scripts import Scripts, UnknownReply

_PAGE: Final = 200
MOST: Final = 200_000
"""Maximum of moved jobs that the tally remembers; with more, counts are not compared."""

Group = tuple[str, str, str, str]
"""Queue, workflow, array (of a task) and concurrency key of a job; '' for none."""


class EventsLost(Exception):
    """The stream of events no longer has all changes since the page before."""


class Tally:
    """The number of jobs per status, at one moment.

    `ended` counts ended jobs separately, because they may be deleted meanwhile.
    """

    def __init__(self, connection: Connection, keys: Keys, scripts: Scripts, say: Say = silent) -> None:
        self._connection = connection
        self._keys = keys
        self._scripts = scripts
        self._say = say
        self._since = "0"
        self._behind = ""
        self._jobs: dict[str, tuple[str, Group]] = {}
        self._groups: dict[Group, Group] = {}
        self._forgotten = False
        self.counted: Counter[tuple[str, str]] = Counter()
        """(hash of counts, without the prefix, field) → number of jobs that have not ended."""
        self.ended: Counter[tuple[str, str]] = Counter()

    async def read_all(self) -> None:
        """Read all jobs; raise EventsLost if too much changes between two pages."""
        last = await self._ask("XREVRANGE", self._keys.events, "+", "-", "COUNT", 1)
        self._since = last[0][0].decode() if last else "0"
        behind: bytes = b"-"
        total, done = await self._ask("ZCARD", self._keys.jobs), 0
        while page := await self._ask("ZRANGEBYLEX", self._keys.jobs, behind, "+", "LIMIT", 0, _PAGE):
            self._behind, behind = text_of(page[-1]), b"(" + page[-1]
            await self.at_once([], page)
            done += len(page)
            self._say("counting jobs", done, total)
        self._behind = "~"

    async def _ask(self, *command: str | int | bytes) -> Any:
        return await patiently(partial(self._connection.call, *command))

    async def at_once(self, commands: Sequence[Ask], ids: Sequence[bytes] = ()) -> list[Any]:
        """Run commands and read jobs in one script, and bring the tally to that moment; return the answers."""
        text = b" ".join(one for one in ids if b" " not in one)
        while True:
            match await patiently(partial(self._scripts.doctor_survey, self._since, text, flat(commands))):
                case [b"LOST"]:
                    raise EventsLost
                case [b"SURVEYED", last, more, answers, of_page, *rows]:
                    self._since = last.decode()
                    for at, row in enumerate(rows):
                        jobs, status, *group = map(text_of, row)
                        if at < of_page:
                            self._add(jobs.split(), status, group)
                            continue
                        for job in jobs.split():
                            self._note(job, status, group)
                    if not more:
                        return list(answers)
                    text = b""
                case reply:
                    raise UnknownReply("doctor_survey", reply)

    def names(self) -> set[str]:
        """Return the hashes that must count some job, even if they do not exist."""
        return {name for name, _ in (*self.counted, *self.ended)}

    def _note(self, job: str, status: str, words: Sequence[str]) -> None:
        """Count a job that has moved in its new place."""
        before = self._jobs.pop(job, None)
        if before is not None:
            self._count(self.counted, *before, -1)
        elif job > self._behind or self._forgotten:
            if job <= self._behind:
                raise EventsLost
            return  # it comes with its page
        self._add([job], status, words)

    def _add(self, jobs: Sequence[str], status: str, words: Sequence[str]) -> None:
        if status not in STATUSES:
            return
        queue, workflow, array, key = words
        group = self._groups.setdefault((queue, workflow, array, key), (queue, workflow, array, key))
        if status not in LIVE:
            self._count(self.ended, status, group, len(jobs))
            return
        self._count(self.counted, status, group, len(jobs))
        room = MOST - len(self._jobs)
        self._jobs.update(dict.fromkeys(jobs[:room], (status, group)))
        self._forgotten = self._forgotten or len(jobs) > room

    def _count(self, counts: Counter[tuple[str, str]], status: str, group: Group, by: int) -> None:
        queue, workflow, array, key = group
        counts[f"queue:{queue}", status] += by
        if workflow:
            counts[f"workflow:{workflow}", status] += by
        if array:
            counts[f"array:{array}", status] += by
        if key and status in LIVE:
            counts[f"concurrency:{key}", "jobs"] += by
