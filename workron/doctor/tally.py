"""Counts jobs anew, exactly, while all goes on.

Jobs are read in pages. With each page come those that have moved since the page before, by the stream of events, so
that what is known is always the state of one moment. In such a moment a hash of counts is read, and compared.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from workron.connection import Connection
from workron.doctor.inspector import bytes_of, text_of
from workron.keys import Keys
from workron.scripts import Scripts

PAGE: Final = 200
LIVE: Final = frozenset({"pending", "scheduled", "running", "blocked"})
ENDED: Final = ("done", "failed", "cancelled", "skipped")

Group = tuple[str, str, str, str]
"""Queue, workflow, array (ARRAY of an array itself) and concurrency key of a job; '' for none."""
ARRAY: Final = "*"


class EventsLost(Exception):
    """The stream of events is shorter than what has happened between two pages."""


class Tally:
    """Knows the status of each job that has not ended, as of one moment."""

    def __init__(self, connection: Connection, keys: Keys, scripts: Scripts) -> None:
        self._connection = connection
        self._keys = keys
        self._scripts = scripts
        self._since = ""
        self._jobs: dict[str, tuple[str, Group]] = {}
        self._groups: dict[Group, Group] = {}
        self._counted: Counter[tuple[tuple[str, str], str]] = Counter()
        """((kind, name) of a hash of counts, field) → number of jobs."""

    async def read_all(self) -> None:
        """Read all jobs; EventsLost if more happens than can be followed."""
        self._since = await self._last_event()
        behind = "-"
        while page := await self._connection.call("ZRANGEBYLEX", self._keys.jobs, behind, "+", "LIMIT", 0, PAGE):
            await self._survey("", page)
            behind = b"(" + page[-1]

    async def wrong_counts(self, name: str) -> list[str]:
        """Compare a hash of counts, by its key without prefix; returns what is wrong, as `lua/inspect.lua` is told."""
        said = await self._survey(name, [])
        return [
            f"{said.get(field, 0) - right} {said[':recounts']} {field} {name}"
            for field, right in self._expected(name, said)
            if said.get(field, 0) != right
        ]

    def names(self) -> set[str]:
        """Return the hashes in which some job is counted, also where none is stored."""
        return {f"{kind}:{name}" for (kind, name), _ in self._counted}

    def pending_in(self, queue: str) -> list[str]:
        """Return the jobs that were pending in a queue when it was looked last."""
        return [job for job, (status, group) in self._jobs.items() if status == "pending" and group[0] == queue]

    async def _last_event(self) -> str:
        last = await self._connection.call("XREVRANGE", self._keys.events, "+", "-", "COUNT", 1)
        return str(last[0][0].decode()) if last else ""

    async def _survey(self, hash_name: str, ids: Sequence[bytes]) -> dict[str, int]:
        """Read jobs, and those that have moved meanwhile; returns the counts of the hash."""
        while True:
            counts: list[bytes] = []
            match await self._scripts.survey(self._since, bytes_of(hash_name), ids):
                case [b"LOST"]:
                    raise EventsLost
                case [b"SURVEYED", last, more, *rows]:
                    pass
                case [b"COUNTED", last, more, counts, *rows]:
                    pass
            self._since = last.decode()
            for row in rows:
                self._note(*(text_of(one) for one in row))
            if not more:
                return dict(_numbers(counts))

    def _note(self, job: str, status: str, *words: str) -> None:
        before = self._jobs.pop(job, None)
        if before is not None:
            self._count(*before, -1)
        if status in LIVE:
            queue, workflow, array, key = words
            group = (queue, workflow, array, key)
            group = self._groups.setdefault(group, group)
            self._jobs[job] = (status, group)
            self._count(status, group, 1)

    def _count(self, status: str, group: Group, by: int) -> None:
        queue, workflow, array, key = group
        self._counted[("queue", queue), status] += by
        if workflow:
            self._counted[("workflow", workflow), status] += by
        if array not in {"", ARRAY}:
            self._counted[("array", array), status] += by
        if key:
            self._counted[("concurrency", key), "jobs"] += by

    def _expected(self, name: str, said: Mapping[str, int]) -> Iterator[tuple[str, int]]:
        kind, _, rest = name.partition(":")
        count = (kind, rest)
        if kind == "concurrency":
            yield "jobs", self._counted[count, "jobs"]
            return
        if kind != "queue" and said.get("size", 1) == 0:
            return  # it is gone, which is told of itself
        for live in LIVE:
            yield live, self._counted[count, live]
        if kind == "queue":
            for status in ENDED:
                yield status, said.get(f":{status}", 0)
            if ":held" in said:
                yield "held", said[":held"]
            if said.get(":batches") == 0 and not any(group[2] for group in self._groups):
                yield "reserved", 0


def _numbers(counts: Sequence[bytes]) -> Iterator[tuple[str, int]]:
    """Fields of a hash that are numbers."""
    pairs: Iterator[Any] = zip(counts[::2], counts[1::2], strict=True)
    for field, value in pairs:
        if value.lstrip(b"-").isdigit():
            yield text_of(field), int(value)
