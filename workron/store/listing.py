"""Pages of jobs. Each filter has the index that finds its jobs without reading the others:

    array                         the tasks' ids, which follow from the job, in order of their indexes
    workflow                      the workflow's list, newest first
    running                       the leases, newest first; where they are many, in no order
    scheduled                     the due times, soonest first
    pending                       the queues' lists, by queue and priority, newest first; then jobs in no list, which
                                  wait for a slot of their concurrency key: by key, the last one first
    blocked and terminal states   the sorted set of the queue or of all queues, latest change first
    anything else                 all ids, newest first, at most `SCAN_ROWS` rows a page

Other filters are compared row by row, at most `SCAN_ROWS` and `PAGE_BYTES` a page; a queue searched
in vain for pending jobs counts as a row. A page may therefore be short or even empty and still have a cursor.
Cursors are positions by value, not by number: concurrent changes shift nothing.
"""

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final

from workron.errors import InvalidRequest
from workron.ids import ids_behind
from workron.models import PRIORITIES, JobFilter, JobPage, Status
from workron.redis.connection import Connection
from workron.redis.keys import Keys
from workron.redis.lane import Command
from workron.store import cursors, decode
from workron.store.cursors import Place
from workron.store.decode import Row
from workron.store.matching import matches
from workron.store.reader import PAGE_BYTES, Reader, scored

SCAN_ROWS: Final = 1000
FEW: Final = 10_000
"""Maximum of leases that are read as a whole and sorted."""

_LOOKED_THROUGH: Final = (100, 5_000)
"""Maximum distance in which the last job of a page is searched: jobs come and go meanwhile."""
_LISTS: Final = tuple(-priority for priority in reversed(PRIORITIES))
_HELD: Final = 0
_BEHIND: Final = 1
"""In a position, after a queue's name: its lists by priority, held jobs, and the end of the queue."""
_QUEUES: Final = 50
_SHORT: Final = 20
"""Maximum of queues whose lists are read in one round trip; a list with fewer jobs is read with it."""
_LEASES: Final = 20
"""Leases per piece: the rest of a piece goes into the cursor."""

Steps = AsyncIterator[tuple[str | None, Place]]
"""Ids in order, each with the position after it; None if nothing was found up to there."""


@dataclass(slots=True)
class _Page:
    """The rows of a page so far, and its remaining room."""

    limit: int
    chosen: list[tuple[str, Row | None]] = field(default_factory=list)
    last: Place | None = None
    """Position after the last row checked."""
    rows_left: int = field(default_factory=lambda: SCAN_ROWS)
    room: int = PAGE_BYTES
    """Remaining room for matching rows, and for others."""

    @property
    def full(self) -> bool:
        return len(self.chosen) >= self.limit or self.rows_left <= 0 or self.room <= 0

    def look_at(self, job_id: str | None, place: Place, row: Row | None, where: JobFilter) -> None:
        self.last = place
        self.rows_left -= 1
        self.room -= decode.size(row)
        if job_id is not None and row is not None and matches(row, where):
            self.chosen.append((job_id, row))


class Listing:
    """Lists jobs by filter, page by page."""

    def __init__(self, connection: Connection, keys: Keys, reader: Reader) -> None:
        self._connection = connection
        self._keys = keys
        self._reader = reader

    async def page(self, where: JobFilter, limit: int, cursor: str | None) -> JobPage:
        place = cursors.parse(cursor)
        try:
            steps = self._steps(where, place, min(SCAN_ROWS, max(limit, 50)))
            return await self._collect(steps, where, _Page(limit))
        except (IndexError, ValueError, TypeError) as error:
            if place is None:
                raise
            raise InvalidRequest("this cursor belongs to another listing", field="cursor") from error

    async def _collect(self, steps: Steps, where: JobFilter, page: "_Page") -> JobPage:
        """Read rows until the page is full or the index ends."""
        waiting: list[tuple[str | None, Place]] = []
        async for step in steps:
            waiting.append(step)
            if len(waiting) >= min(page.limit, page.rows_left):
                await self._choose(waiting, where, page)
                waiting = []
                if page.full:
                    break
        else:
            await self._choose(waiting, where, page)
        jobs = await self._reader.complete(page.chosen)
        cursor = cursors.write(page.last) if page.full and page.last is not None else None
        return JobPage(tuple(job for job in jobs if job is not None), cursor)

    async def _choose(self, steps: list[tuple[str | None, Place]], where: JobFilter, page: "_Page") -> None:
        """Check these jobs, until the page is full."""
        left = deque(steps)
        while left and not page.full:
            wanted = [job_id for job_id, _ in left if job_id is not None]
            rows = deque(await self._reader.rows_within(wanted, page.room) if wanted else ())
            while left and (rows or left[0][0] is None) and not page.full:
                job_id, place = left.popleft()
                page.look_at(job_id, place, None if job_id is None else rows.popleft(), where)

    def _steps(self, where: JobFilter, place: Place | None, count: int) -> Steps:
        if where.array is not None:
            return self._array(where.array, place, count)
        if where.workflow is not None:
            return self._workflow(where.workflow, place, count)
        if where.status is Status.RUNNING:
            return self._running(place)
        if where.status is Status.SCHEDULED:
            return self._by_time(self._keys.due, place, count, newest_first=False)
        if where.status is Status.PENDING:
            return self._pending(where.queue, place, count)
        if where.status is not None:
            key = self._keys.index(where.queue, where.status)
            return self._by_time(key, place, count, newest_first=True)
        return self._all(place, count)

    async def _all(self, place: Place | None, count: int) -> Steps:
        start = "+" if place is None else f"({place[0]}"
        while ids := await self._connection.call(
            "ZRANGE", self._keys.jobs, start, "-", "BYLEX", "REV", "LIMIT", 0, count
        ):
            for raw in ids:
                job_id = raw.decode()
                yield job_id, [job_id]
            start = f"({ids[-1].decode()}"

    async def _array(self, array: str, place: Place | None, count: int) -> Steps:
        first, about = await self._connection.pipeline(
            [
                ("HGET", self._keys.job(array), "array_first"),
                ("HMGET", self._keys.array(array), "size", "made", "dropped_from", "follows"),
            ]
        )
        size, made, dropped, follows = about
        if first is None or size is None:
            return
        # Tasks that follow others are made in any order; the others in theirs, and behind the last one there is none.
        last = int(size) if follows else int(dropped or made)
        start = 0 if place is None else max(0, int(place[0]))
        while start < last:
            page = min(count, last - start)
            for index, job_id in enumerate(ids_behind(first.decode(), start, page), start):
                yield job_id, [index + 1]
            start += page

    async def _workflow(self, workflow: str, place: Place | None, count: int) -> Steps:
        key = self._keys.workflow_jobs(workflow)
        end = await self._connection.call("LLEN", key)
        if place is not None:
            end = min(int(place[0]), end)
        while end > 0:
            begin = max(0, end - count)
            ids = await self._connection.call("LRANGE", key, begin, end - 1)
            for offset in reversed(range(len(ids))):
                yield ids[offset].decode(), [begin + offset]
            end = begin

    async def _running(self, place: Place | None) -> Steps:
        if len(place) > 1 if place else await self._connection.call("ZCARD", self._keys.leases) > FEW:
            async for step in self._running_in_pieces(*(place or ["", ""])):
                yield step
            return
        ids = await self._connection.call("ZRANGE", self._keys.leases, 0, 2 * FEW)  # it may have become longer since
        for raw in sorted(ids, reverse=True):
            job_id = raw.decode()
            if place is None or job_id < place[0]:
                yield job_id, [job_id]

    async def _running_in_pieces(self, cursor: str, ids: str) -> Steps:
        """Scan the leases: heartbeats move them all the time, but jobs that run during the whole scan are found."""
        left = str(ids).split()
        while True:
            for at, job_id in enumerate(left, 1):
                yield job_id, [cursor, " ".join(left[at:])]
            if cursor == "0":
                return
            scan = ("ZSCAN", self._keys.leases, cursors.scanned(cursor), "COUNT", _LEASES)
            reply, piece = await self._connection.call(*scan)
            cursor, left = str(int(reply)), [job_id for job_id, _ in scored(piece)]

    async def _by_time(self, key: str, place: Place | None, count: int, *, newest_first: bool) -> Steps:
        async for job_id, score in self._zset(key, place, count, newest_first=newest_first):
            yield job_id, [score, job_id]

    async def _zset(
        self, key: str, place: Place | None, count: int, *, newest_first: bool
    ) -> AsyncIterator[tuple[str, int]]:
        """Yield members and scores after a position (score, id); members of one score are in order of their ids."""
        order = ("REV",) if newest_first else ()
        start = 0
        if place is not None:
            bounds = (f"({int(place[0])}", "+inf") if newest_first else ("-inf", f"({int(place[0])}")
            start = await self._connection.call("ZCOUNT", key, *bounds)
        while True:
            members = scored(await self._connection.call("ZRANGE", key, start, start + count - 1, *order, "WITHSCORES"))
            for job_id, score in members:
                if place is None or _behind((score, job_id), (int(place[0]), str(place[1])), newest_first):
                    yield job_id, score
            if len(members) < count:
                return
            start += count

    async def _pending(self, queue: str | None, place: Place | None, count: int) -> Steps:
        """Yield queue by queue, priority by priority, each list from its tail.

        Claims shorten a list at its head, submissions lengthen it at its tail: a page begins after the last job of the
        previous one, wherever that is now; if it has left the list, at its former distance from the tail.
        """
        async for names in self._queues(queue, place):
            heads = await self._reader.each([head for name in names for head in self._heads(name)])
            segments = [(name, segment) for name in names for segment in (*_LISTS, _HELD)]
            for (name, segment), head in zip(segments, heads, strict=True):
                at = [name, segment]
                if head and not isinstance(head, Exception) and (place is None or at >= place[:2]):
                    here = place if place is not None and at == place[:2] else None
                    async for step in self._segment(name, segment, here, count, head):
                        yield step
                if segment == _HELD:
                    yield None, [name, _BEHIND]

    async def _queues(self, queue: str | None, place: Place | None) -> AsyncIterator[list[str]]:
        """Yield the names of queues that may have pending jobs, from a position on."""
        if queue is not None:
            yield [queue]
            return
        start = b"-" if place is None else f"[{place[0]}".encode()
        while names := await self._connection.call(
            "ZRANGE", self._keys.pending_queues, start, "+", "BYLEX", "LIMIT", 0, _QUEUES
        ):
            yield [name.decode(errors="replace") for name in names]
            start = b"(" + names[-1]

    def _heads(self, queue: str) -> list[Command]:
        """Commands that return whether each segment has jobs; for short lists all of their jobs."""
        lists: list[Command] = [("LRANGE", self._keys.pending(queue, -segment), -_SHORT, -1) for segment in _LISTS]
        return [*lists, ("ZCARD", self._keys.concurrency_keys(queue))]

    async def _segment(self, queue: str, segment: int, place: Place | None, count: int, head: Any) -> Steps:
        if segment == _HELD:
            async for held in self._held(queue, place, count):
                yield held
        elif place is None and len(head) < _SHORT:
            for behind, raw in enumerate(reversed(head), 1):
                yield raw.decode(), [queue, segment, behind, raw.decode()]
        else:
            async for job_id, behind in self._pending_list(queue, -segment, place, count):
                yield job_id, [queue, segment, behind, job_id]

    async def _pending_list(
        self, queue: str, priority: int, place: Place | None, count: int
    ) -> AsyncIterator[tuple[str, int]]:
        key = self._keys.pending(queue, priority)
        behind = 0 if place is None else await self._behind(key, int(place[2]), str(place[3]))
        while ids := await self._connection.call("LRANGE", key, -behind - count, -behind - 1):
            for raw in reversed(ids):
                behind += 1
                yield raw.decode(), behind
            if len(ids) < count:
                return

    async def _held(self, queue: str, place: Place | None, count: int) -> Steps:
        start = "-" if place is None else f"[{place[2]}"
        while names := await self._connection.call(
            "ZRANGE", self._keys.concurrency_keys(queue), start, "+", "BYLEX", "LIMIT", 0, count
        ):
            for raw in names:
                name = raw.decode()
                here = place[3:] if place is not None and place[2] == name else None
                async for job_id, at in self._zset(self._keys.in_line(name, queue), here, count, newest_first=True):
                    if at < 0:  # these are in the list
                        break
                    yield job_id, [queue, _HELD, name, at, job_id]
            start = f"({names[-1].decode()}"

    async def _behind(self, key: str, behind: int, job_id: str) -> int:
        """Return the distance from the tail at which to continue after this job, which was `behind` from it.

        It is searched only near there: cursors can be forged, and lists have millions of jobs.
        """
        length: int = await self._connection.call("LLEN", key)
        behind, wanted = max(0, min(behind, length)), job_id.encode()
        for around in _LOOKED_THROUGH:
            nearest = max(1, behind - around)
            ids = await self._connection.call("LRANGE", key, -behind - around, -nearest)
            for distance, raw in enumerate(reversed(ids), nearest):
                if raw == wanted:
                    return distance
        return behind


def _behind(member: tuple[int, str], place: tuple[int, str], newest_first: bool) -> bool:
    return member < place if newest_first else member > place
