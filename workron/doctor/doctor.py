"""One examination of all keys and counts, and the rebuild."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from operator import ne
from typing import Final

from workron import ids
from workron.doctor.counts import Counts
from workron.doctor.faults import Fault, text_of
from workron.doctor.patience import patiently
from workron.doctor.places import Place
from workron.doctor.progress import Say, silent
from workron.doctor.reading import Reader
from workron.doctor.rebuild_lock import RebuildLock
from workron.doctor.tally import EventsLost, Tally
from workron.doctor.walk import Walk
from workron.errors import InvalidRequest, StoreBroken, StoreUnavailable
from workron.redis.connection import Connection
from workron.redis.keys import Keys
from workron.redis.scripts import Scripts
from workron.schedules.models import Schedule
from workron.schedules.plan import times_of

_TRIES: Final = 5
_ROUNDS: Final = 8
_LEASE_S: Final = 60.0
"""Duration of the lock after the last write of a rebuild that died."""
_HIDE_JOBS: Final = frozenset({"missing", "wrong-type", "damaged"})
"""With one of these faults, jobs may be missing from the tally, so counts are not compared."""

ReadSchedule = Callable[[str], Awaitable[tuple[Schedule | None, int]]]
"""Returns a schedule by its name, and the server's time in ms."""


@dataclass(frozen=True, slots=True)
class Report:
    """The result of an examination. With a rebuild, `mended` are the repaired faults, `faults` the remaining ones."""

    faults: tuple[Fault, ...]
    mended: tuple[Fault, ...]
    keys: int
    jobs: int
    seconds: float
    uncounted: str
    """Why counts were not compared; '' if they were."""
    rollbacks: int
    rolled_back: str


class Doctor:
    """Examines one namespace. Several doctors may run at any time."""

    def __init__(self, connection: Connection, keys: Keys, scripts: Scripts, read_schedule: ReadSchedule) -> None:
        self._connection = connection
        self._keys = keys
        self._scripts = scripts
        self._read_schedule = read_schedule

    async def examine(self, *, rebuild: bool = False, say: Say = silent) -> Report:
        """Check everything. `rebuild`: first lock out all other calls, and write what is missing or wrong."""
        began_s = time.monotonic()
        mended = await self._rebuild(say) if rebuild else []
        walk, uncounted = await self._look(Reader(self._connection, self._keys, self._scripts), say)
        rollbacks, rolled_back = await self._rollbacks()
        left = {(one.code, one.about) for one in walk.found}
        return Report(
            faults=tuple(dict.fromkeys(walk.found)),
            mended=tuple(dict.fromkeys(one for one in mended if (one.code, one.about) not in left)),
            keys=walk.keys,
            jobs=walk.jobs,
            seconds=time.monotonic() - began_s,
            uncounted=uncounted,
            rollbacks=rollbacks,
            rolled_back=rolled_back,
        )

    async def _rebuild(self, say: Say) -> list[Fault]:
        """Rebuild under the lock. Each command is correct on its own, so the next rebuild does what is left."""
        lock = RebuildLock(self._scripts, ids.new_id(), _LEASE_S)
        await lock.acquire()
        try:
            mended = await self._repair(lock, say)
            await lock.release()
        except StoreUnavailable as error:
            raise StoreUnavailable(
                f"the rebuild stopped midway: {error}. What it wrote is right, and the rest is as it was. "
                f"Claims and other calls wait for at most {_LEASE_S:.0f} s: run the rebuild again"
            ) from error  # the lock is lost, or ends by itself
        except BaseException:
            await lock.release()
            raise
        return mended

    async def _repair(self, lock: RebuildLock, say: Say) -> list[Fault]:
        """Repair in rounds, until a round finds nothing: counts are right only after all jobs are in their indexes."""
        mended: list[Fault] = []
        for number in range(1, _ROUNDS + 1):
            round_says = partial(_prefixed, say, f"rebuild, round {number}: ")
            walk, _ = await self._look(Reader(self._connection, self._keys, self._scripts, lock), round_says)
            now = [replace(one, mended=True) for one in walk.found if not one.kind.by_hand]
            mended += now
            if not now:
                break
        return mended

    async def _rollbacks(self) -> tuple[int, str]:
        try:
            asked = partial(self._connection.call, "HMGET", self._keys.meta, "rollbacks", "rolled_back")
            number, last = await patiently(asked)
        except StoreBroken:  # it has another type, as the report says
            return 0, ""
        return int(number or 0), text_of(last or b"")

    async def _look(self, reader: Reader, say: Say) -> tuple[Walk, str]:
        walk = Walk(self._keys, self._scripts, reader, say)
        await walk.run()
        await self._look_at_schedules(walk)
        if any(one.code in _HIDE_JOBS for one in walk.found):
            return walk, "some jobs could not be found or read: mend that first"
        for _ in range(_TRIES):
            tally = Tally(self._connection, self._keys, self._scripts, say)
            try:
                await tally.read_all()
                walk.found += await self._compare(reader, walk.counted, tally, say)
            except EventsLost:
                continue
            return walk, ""
        return walk, "more happens than can be followed: try again when less is going on"

    async def _compare(self, reader: Reader, names: set[str], tally: Tally, say: Say) -> list[Fault]:
        counts, found, all_names = Counts(self._keys, tally, reader), list[Fault](), names | tally.names()
        done = 0
        for kind in ("array", "workflow", "concurrency", "queue"):  # arrays first: they have room in queues
            for name in sorted(name for name in all_names if name.startswith(f"{kind}:")):
                found += await reader.mended(await getattr(counts, kind)(name.partition(":")[2]))
                done += 1
                say("comparing counts", done, len(all_names))
        return found or await reader.mended(await counts.totals())

    async def _look_at_schedules(self, walk: Walk) -> None:
        """Find schedules that can't be read, and schedules without a next time: it follows from the definition."""
        for name in walk.schedules:
            try:
                schedule, _ = await patiently(partial(self._read_schedule, name))
                since_ms = schedule and (schedule.last_at_ms or schedule.updated_at_ms)
                next_ms = times_of(schedule).after(since_ms) if schedule and since_ms else None
            except (StoreBroken, InvalidRequest, ValueError, LookupError) as error:
                walk.found.append(Fault("unreadable", f"schedule {name}", f"{error!s:.100}"))
            else:
                key, fields = self._keys.schedule(name), ("next", "queued", "paused", "version")
                version = schedule.version.encode() if schedule else b""
                mend = ("HSET", key, "next", next_ms or 0), ("ZADD", self._keys.schedules_due, next_ms or 0, name)
                place = Place(("HMGET", key, *fields), partial(ne, [None, None, None, version]), mend)
                await walk.ask([partial(walk.checks.stands, f"schedule {name}", [place] if next_ms else [])])


def _prefixed(say: Say, prefix: str, what: str, done: int, total: int) -> None:
    say(prefix + what, done, total)
