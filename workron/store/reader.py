"""Reads jobs, queues, workers and workflows; never writes.

Jobs are read in calls of bounded size, by number and by bytes: a job may have 5 MB. Related data (heartbeats of
the running ones, states of parents) takes another round trip.
"""

from collections.abc import Collection, Mapping, Sequence, Set
from typing import Any, Final

from workron.errors import NotFound
from workron.models import DEFAULT_QUEUE, EDGES_SHOWN, Job, OnFailure, QueuePage, QueueState, Status, Stopped, Workflow
from workron.models.workers import WorkerPage, WorkerState, WorkerStatus
from workron.redis.connection import Connection
from workron.redis.keys import Keys
from workron.redis.lane import Command
from workron.redis.scripts import Scripts
from workron.runtime.logger import log
from workron.store import decode
from workron.store.decode import Row
from workron.times import redis_ms

SHARED: Final = (
    "command", "argv", "name", "tags", "metadata", "max_attempts", "retry", "timeout_ms", "env", "cwd", "created_at",
    "concurrency", "concurrency_limit",
)  # fmt: skip
"""Fields that a task inherits from its array's job."""
PAGE: Final = 1000
"""Maximum of commands in one round trip."""
ROWS: Final = 100
"""Maximum of jobs in one call."""
ROOM: Final = 1024 * 1024
"""Bytes in one call after which no other job is read."""
PAGE_BYTES: Final = 4 * 1024 * 1024
"""The same for a page of jobs."""
MOST_WORKERS: Final = 10_000
"""Maximum of listed workers: those with the latest heartbeats."""


class Reader:
    """Reading calls on one namespace."""

    def __init__(self, connection: Connection, keys: Keys, scripts: Scripts) -> None:
        self._connection = connection
        self._keys = keys
        self._scripts = scripts

    async def job(self, job_id: str) -> Job:
        """Return a job with all of its dependencies."""
        [row] = await self._first_rows([job_id], None)
        [found] = await self.complete([(job_id, row)])
        if found is None:
            raise NotFound("job", job_id)
        return found

    async def jobs(self, ids: Sequence[str]) -> list[Job | None]:
        """Return the jobs of any number of ids, None for unknown ones. They have only their first dependencies."""
        rows = await self.rows(ids)
        return await self.complete(list(zip(ids, rows, strict=True)))

    async def read(self, commands: Sequence[Command]) -> list[Any]:
        """Run any number of reading commands in pages, so that each call is fast."""
        replies: list[Any] = []
        for start in range(0, len(commands), PAGE):
            replies += await self._connection.pipeline(commands[start : start + PAGE])
        return replies

    async def each(self, commands: Sequence[Command]) -> list[Any]:
        """Do the same; an error of a damaged key is returned among the replies."""
        replies: list[Any] = []
        for start in range(0, len(commands), PAGE):
            replies += await self._connection.each(commands[start : start + PAGE])
        return replies

    async def rows(self, ids: Sequence[str]) -> list[Row | None]:
        """Return the hashes of these ids; None also while the job's submission is not open."""
        rows: list[Row | None] = []
        while len(rows) < len(ids):
            rows += await self._first_rows(ids[len(rows) :])
        return rows

    async def rows_within(self, ids: Sequence[str], room: int) -> list[Row | None]:
        """Return the hashes of the first of these ids: at least one, until `room` bytes are used up."""
        rows: list[Row | None] = []
        while len(rows) < len(ids) and room > 0:
            for row in await self._first_rows(ids[len(rows) :]):
                rows.append(row)
                room -= decode.size(row)
                if room <= 0:
                    break
        return rows

    async def _first_rows(self, ids: Sequence[str], edges: int | None = EDGES_SHOWN) -> list[Row | None]:
        """Return the first of them, as many as fit a call, with the fields that tasks inherit from their arrays.

        They have at most `edges` dependencies, and `dependency_count` if there are more.
        """
        ids = ids[:ROWS]
        rows = await self._shown(ids)
        tasks = [decode.task(row) if row else None for row in rows]
        arrays = list(dict.fromkeys(task.array for task in tasks if task))
        about = dict(zip(arrays, await self._shown(arrays), strict=False))
        ends = (place for place, task in enumerate(tasks) if task and task.array not in about)
        rows = await self._opened(ids, rows[: next(ends, len(rows))])
        for place, (row, task) in enumerate(zip(rows, tasks, strict=False)):
            if row is not None:
                whole = row if task is None else _filled(row, about[task.array])
                rows[place] = whole if edges is None else decode.cut(whole, edges)
        return rows

    async def _opened(self, ids: Sequence[str], rows: list[Row | None]) -> list[Row | None]:
        """Hide the jobs of submissions that are not open yet."""
        batches = list({row["batch"].decode() for row in rows if row and "batch" in row})
        states = await self.read([("HGET", self._keys.batch(batch), "state") for batch in batches])
        hidden = {batch.encode() for batch, state in zip(batches, states, strict=True) if state != b"open"}
        gone = {batch.encode() for batch, state in zip(batches, states, strict=True) if state is None}
        for place, row in enumerate(rows):
            if row and row.get("batch") in gone:  # admitted between the two reads, or given up: the hash knows by now
                [rows[place]] = await self._shown([ids[place]])
        return [None if row is None or row.get("batch") in hidden else row for row in rows]

    async def _shown(self, ids: Sequence[str]) -> list[Row | None]:
        if not ids:
            return []
        _, *replies = await self._scripts.job_show(ROOM, ids, on=self._connection)
        return [decode.row(reply) if reply else None for reply in replies]

    async def queues_of(self, ids: Sequence[str]) -> list[str | None]:
        """Return the queues of these jobs, None for unknown jobs."""
        rows = await self.read([("HMGET", self._keys.job(job_id), "status", "queue") for job_id in ids])
        return [
            None if isinstance(row, Exception) or row[0] is None else decode.text(row[1]) or DEFAULT_QUEUE
            for row in rows
        ]

    async def missing(self, ids: Sequence[str]) -> list[str]:
        """Return which of these jobs are not stored."""
        found = await self.read([("EXISTS", self._keys.job(job_id)) for job_id in ids])
        return [job_id for job_id, exists in zip(ids, found, strict=True) if exists == 0]

    async def returned(self, first: str) -> dict[str, str]:
        """Return the jobs of a submission that were not stored, and the holders of their unique keys."""
        found: dict[str, str] = {}
        cursor: Any = 0
        while True:
            cursor, page = await self._connection.call("HSCAN", self._keys.returned(first), cursor, "COUNT", PAGE)
            found |= {name: holder.decode() for name, holder in decode.row(page).items()}
            if int(cursor) == 0:
                return found

    async def complete(self, rows: Sequence[tuple[str, Row | None]]) -> list[Job | None]:
        """Convert hashes to jobs, with last heartbeats, states of parents, and data of arrays."""
        asked: dict[tuple[str, str], Command] = {}
        for job_id, row in rows:
            if row is not None:
                asked |= self._related(job_id, row)
        replies = dict(zip(asked, await self.each(list(asked.values())), strict=True))
        return [None if row is None else _job(job_id, row, replies) for job_id, row in rows]

    def _related(self, job_id: str, row: Row) -> dict[tuple[str, str], Command]:
        """Return the commands for data related to a job's hash, by kind and owner."""
        asked: dict[tuple[str, str], Command] = {}
        if row.get("status") == b"running":
            asked["heartbeat", job_id] = ("GET", self._keys.heartbeat(job_id))
        for parent in decode.parents_of(row):
            asked["status", parent] = ("HGET", self._keys.job(parent), "status")
        if "array_size" in row:
            asked["array", job_id] = ("HGETALL", self._keys.array(job_id))
            asked["skips", job_id] = ("SCARD", self._keys.array_skips(job_id))
        if (task := decode.task(row)) is not None:
            asked["value", job_id] = ("LINDEX", self._keys.array_values(task.array), task.index)
        return asked

    async def queues(self, limit: int, after: str, among: Collection[str] | None = None) -> QueuePage:
        """Return the queues after `after` by name, of all or of the given ones."""
        if among is None:
            start = f"({after}" if after else "-"
            found = await self._connection.call("ZRANGE", self._keys.queues, start, "+", "BYLEX", "LIMIT", 0, limit + 1)
            names = [name.decode(errors="replace") for name in found]
        else:
            wanted = sorted(name for name in among if name > after)
            scores = await self.read([("ZSCORE", self._keys.queues, name) for name in wanted])
            names = [name for name, score in zip(wanted, scores, strict=True) if score is not None]
        page = await self.queues_named(names[:limit])
        return QueuePage(tuple(page), names[limit - 1] if len(names) > limit else None)

    async def all_queues(self) -> list[QueueState]:
        found: list[QueueState] = []
        after: str | None = ""
        while after is not None:
            page = await self.queues(PAGE, after)
            found += page.queues
            after = page.next_cursor
        return found

    async def queues_named(self, names: Sequence[str]) -> list[QueueState]:
        commands: list[Command] = [("HGETALL", self._keys.queue(name)) for name in names]
        usual, *replies = await self.each([("HGET", self._keys.meta, "max_pending"), *commands])
        if isinstance(usual, Exception):
            usual = None
        rows = [{} if isinstance(reply, Exception) else decode.row(reply) for reply in replies]
        return [decode.queue(name, row, usual) for name, row in zip(names, rows, strict=True)]

    async def workers(self, limit: int, after: str) -> WorkerPage:
        """Return the workers after `after` by name: live ones, and those lost within the last hour."""
        beats, time = await self._connection.pipeline(
            [("ZREVRANGE", self._keys.workers, 0, MOST_WORKERS - 1, "WITHSCORES"), ("TIME",)]
        )
        seen = sorted(pair for pair in scored(beats) if pair[0] > after)
        page = seen[:limit]
        replies = await self.each([("HGETALL", self._keys.worker(name)) for name, _ in page])
        found = [_worker(*beat, reply, redis_ms(time)) for beat, reply in zip(page, replies, strict=True)]
        shown = tuple(worker for worker in found if worker is not None)
        return WorkerPage(shown, page[-1][0] if len(seen) > limit else None)

    async def serving(self, queue: str) -> list[WorkerState]:
        """Return the active workers of a queue, among the `MOST_WORKERS` with the latest heartbeats."""
        beats, time = await self._connection.pipeline(
            [("ZREVRANGE", self._keys.workers, 0, MOST_WORKERS - 1, "WITHSCORES"), ("TIME",)]
        )
        seen, name = scored(beats), f'"{queue}"'.encode()
        found: list[WorkerState] = []
        for start in range(0, len(seen), PAGE):
            page = seen[start : start + PAGE]
            replies = await self.each([("HGETALL", self._keys.worker(worker)) for worker, _ in page])
            for beat, reply in zip(page, replies, strict=True):
                worker = _worker(*beat, reply, redis_ms(time), serving=name)
                if worker is not None and worker.status is WorkerStatus.ACTIVE and queue in worker.info.queues:
                    found.append(worker)
        return found

    async def worker(self, name: str) -> WorkerState:
        beat, reply, time = await self._connection.pipeline(
            [("ZSCORE", self._keys.workers, name), ("HGETALL", self._keys.worker(name)), ("TIME",)]
        )
        found = None if beat is None else _worker(name, int(float(beat)), reply, redis_ms(time))
        if found is None:
            raise NotFound("worker", name)
        return found

    async def workflow(self, workflow: str) -> Workflow:
        row = decode.row(await self._connection.call("HGETALL", self._keys.workflow(workflow)))
        if "created_at" not in row:
            raise NotFound("workflow", workflow)
        name = decode.text(row["name"]) or None
        how = decode.text(row.get("stopped"))
        return Workflow(
            workflow,
            name,
            int(row["created_at"]),
            int(row["size"]),
            decode.counts(row),
            on_failure=OnFailure(decode.text(row.get("on_failure")) or OnFailure.CONTINUE),
            stopped=Stopped(how) if how else None,
            stopped_by=decode.text(row.get("stopped_by")),
            final=decode.text(row.get("final")),
            watched="watched" in row,
            key=decode.text(row.get("key")),
        )

    async def named_jobs(self, workflow: str, names: Set[str]) -> dict[str, str]:
        """Return the ids of a workflow's jobs with these names, the newest of duplicates, searching from the end."""
        found: dict[str, str] = {}
        end = int(await self._connection.call("LLEN", self._keys.workflow_jobs(workflow)))
        while end > 0 and len(found) < len(names):
            start = max(0, end - PAGE)
            ids = await self._connection.call("LRANGE", self._keys.workflow_jobs(workflow), start, end - 1)
            members = [one.decode() for one in reversed(ids)]
            for job_id, name in zip(
                members, await self.each([("HGET", self._keys.job(one), "name") for one in members]), strict=True
            ):
                if isinstance(name, bytes) and name.decode() in names:
                    found.setdefault(name.decode(), job_id)
            end = start
        return found

    async def workflow_jobs(self, workflow: str, limit: int) -> list[Job]:
        """Return the first jobs of a workflow, parents before their children; fewer if they are large."""
        found = await self._connection.call("LRANGE", self._keys.workflow_jobs(workflow), 0, limit - 1)
        ids = [one.decode() for one in found]
        rows = await self.rows_within(ids, PAGE_BYTES)
        return [job for job in await self.complete(list(zip(ids, rows, strict=False))) if job is not None]


def _filled(row: Row, array: Row | None) -> Row:
    """Add to a task the fields of its array."""
    return row if array is None else {name: array[name] for name in SHARED if name in array} | dict(row)


def _job(job_id: str, row: Row, related: Mapping[tuple[str, str], Any]) -> Job | None:
    """Return a job; `related` has the replies, with an error for a damaged key."""

    def of(what: str, whose: str) -> Any:
        reply = related.get((what, whose))
        return None if isinstance(reply, Exception) else reply

    try:
        states = {parent: of("status", parent) for parent in decode.parents_of(row)}
        parents = {parent: Status(state.decode()) if state else None for parent, state in states.items()}
        array = of("array", job_id)
        about_array = None if array is None else {**decode.row(array), "skips": b"%d" % (of("skips", job_id) or 0)}
        return decode.job(job_id, row, of("heartbeat", job_id), parents, about_array, decode.text(of("value", job_id)))
    except (KeyError, ValueError):
        log.warning("job unreadable", job=job_id)
        return None


def _worker(
    name: str, last_heartbeat_at_ms: int, reply: Any, now_ms: int, *, serving: bytes = b""
) -> WorkerState | None:
    """Return the worker of a hash; None if there is none, it can't be read, or its description lacks `serving`."""
    row = {} if isinstance(reply, Exception) else decode.row(reply)
    if serving not in row.get("about", b"") or "about" not in row:
        return None
    try:
        return decode.worker(row, last_heartbeat_at_ms, now_ms)
    except (AttributeError, KeyError, TypeError, ValueError):
        log.warning("worker unreadable", worker=name)
        return None


def scored(reply: Any) -> list[tuple[str, int]]:
    """Return members and scores of a sorted-set reply, in either protocol version."""
    if reply and isinstance(reply[0], bytes):
        reply = list(zip(reply[::2], reply[1::2], strict=True))
    return [(member.decode(), int(float(score))) for member, score in reply]
