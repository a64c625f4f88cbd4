"""What the system itself tells of every transition: its stream of events, followed from before the start."""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from workron.models import TERMINAL

Told = dict[str, list[str]]
"""What one entry tells: the ids of the jobs that came into each status."""


class Events:
    """All entries of the stream, in order; it is capped, so they are kept here, and in a file."""

    def __init__(self, admin: Callable[[], Redis], stream: str, file: Path) -> None:
        self._admin = admin
        """Gives the server that has the stream now: another one after a failover."""
        self._stream = stream
        self._file = file
        self.entries: dict[str, Told] = {}
        self.status: dict[str, str] = {}
        """The last one that was told of each job."""
        self.undone = 0
        """Entries that a server no longer had: history that was rolled back."""
        self._claims_undone: Counter[str] = Counter()
        self.missed = 0
        """Entries that had left the stream before they were read here."""

    async def follow(self) -> None:
        """Read for ever; reads all again that is there whenever the server was away or is another one."""
        while not _is_cancelled():
            try:
                await self._follow(self._admin())
            except (RedisError, OSError):
                await asyncio.sleep(0.05)

    async def _follow(self, admin: Redis) -> None:
        await self.catch_up(admin)
        last = next(reversed(self.entries), "0-0")
        while self._admin() is admin and not _is_cancelled():
            answer: Any = await admin.xread({self._stream: last}, count=500, block=500)
            for name, fields in answer[self._stream.encode()][0] if answer else ():
                last = name.decode()
                self.take(last, _told(fields))

    async def catch_up(self, admin: Redis) -> None:
        """Take the stream as it is: what it had, and has no more, never was."""
        found, about = await self._all_of(admin)
        if not found:
            return
        there = {name.decode(): _told(fields) for name, fields in found}
        first = _order(next(iter(there)))
        if self.entries and _order(next(reversed(self.entries))) < first:
            self.missed += 1
        gone = [name for name, told in self.entries.items() if _order(name) >= first and there.get(name) != told]
        for name in gone:
            self._claims_undone.update(self.entries.pop(name).get("running", ()))
        self.undone += len(gone)
        if gone:
            self._tell_anew()
        for name, told in there.items():
            if name not in self.entries:
                self.take(name, told)
        if gone:
            self.entries = dict(sorted(self.entries.items(), key=lambda entry: _order(entry[0])))
        self.missed = max(self.missed, int(about["entries-added"]) - len(self.entries))

    async def _all_of(self, admin: Redis) -> tuple[Any, Any]:
        """The stream, and what is said of it, as of one moment."""
        try:
            return await admin.pipeline().xrange(self._stream).xinfo_stream(self._stream).execute()
        except ResponseError:  # there is none yet
            return [], {}

    def _tell_anew(self) -> None:
        """Forget how jobs ended whose ends were undone."""
        self.status = {}
        for told in self.entries.values():
            self._note(told)

    def _note(self, told: Told) -> None:
        for status, ids in told.items():
            for job_id in ids:
                if status in TERMINAL or self.status.get(job_id) not in TERMINAL or status in ("pending", "scheduled"):
                    self.status[job_id] = status

    def take(self, name: str, told: Told) -> None:
        self.entries[name] = told
        self._note(told)
        with self._file.open("a") as file:
            file.write(json.dumps([name, told]) + "\n")

    def ended(self, job_id: str) -> bool:
        return self.status.get(job_id) in TERMINAL

    def times_ended(self) -> Counter[str]:
        return Counter(
            job_id for told in self.entries.values() for status in TERMINAL for job_id in told.get(status, ())
        )

    def attempts(self) -> tuple[Counter[str], Counter[str]]:
        """Return how often each job was claimed, and how many of those attempts were brought to an end, good or bad."""
        claims = self._claims_undone.copy()  # their commands ran all the same
        concluded: Counter[str] = Counter()
        runs: set[str] = set()
        for told in self.entries.values():
            for status in ("scheduled", *TERMINAL):  # not `pending`: that is an attempt lost, or given back
                concluded.update(runs.intersection(told.get(status, ())))
            for status, ids in told.items():
                if status not in ("running", "cancelling"):
                    runs.difference_update(ids)
            claims.update(told.get("running", ()))
            runs.update(told.get("running", ()))
        return claims, concluded

    def starts_too_early(self, parents: Mapping[str, Sequence[tuple[str, str]]]) -> list[tuple[str, str, str]]:
        """Return the jobs that were started before what they wait for (id, and how it has to end) had ended so."""
        ends: defaultdict[str, set[str]] = defaultdict(set)
        found = []
        for name, told in self.entries.items():
            for status in TERMINAL:
                for job_id in told.get(status, ()):
                    ends[job_id] |= {status, "finished"}
            for job_id in told.get("running", ()):
                found += [
                    (job_id, parent, name) for parent, when in parents.get(job_id, ()) if when not in ends[parent]
                ]
        return found

    def ends_of(self, ids: Sequence[str]) -> list[float]:
        """Return when any of these jobs ended, s since the epoch, in order."""
        wanted = set(ids)
        return [
            int(name.partition("-")[0]) / 1000
            for name, told in self.entries.items()
            if wanted.intersection(told.get("done", ()))
        ]


def _is_cancelled() -> bool:
    """Tell whether this task was cancelled: before Python 3.12, redis-py may swallow it."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _told(fields: dict[bytes, bytes]) -> Told:
    return {status.decode(): ids.decode().split() for status, ids in fields.items()}


def _order(name: str) -> tuple[int, int]:
    ms, _, number = name.partition("-")
    return int(ms), int(number)


@dataclass
class Ran:
    """The commands that were started, as they noted it themselves."""

    fences: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Under which fences, by job."""
    named: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Of which jobs, by the name that their submitter gave them."""


def executions(file: Path) -> Ran:
    ran = Ran()
    if file.exists():
        for line in file.read_text().splitlines():
            job_id, fence, name = line.split()
            ran.fences[job_id].append(fence)
            ran.named[name].add(job_id)
    return ran
