"""Stored schedules: put, read, list, pause and delete them. Starts no jobs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from workron import ids
from workron.errors import InvalidRequest, NotFound, StoreBroken, StoreUnavailable
from workron.redis import formats
from workron.redis.connection import Connection
from workron.redis.keys import Keys
from workron.redis.read_pool import Reads
from workron.redis.scripts import Arg, Scripts, UnknownReply
from workron.runtime.logger import log
from workron.schedules.models import (
    SHOWN_RUNS,
    CatchUp,
    Definition,
    Overlap,
    Run,
    RunOutcome,
    Schedule,
    SchedulePage,
)
from workron.schedules.plan import Step
from workron.schedules.times import Dst, Times
from workron.store import decode
from workron.store.decode import Row
from workron.times import redis_ms

_LISTED: Final = (
    "cron", "timezone", "dst", "overlap", "catch_up", "paused", "kind", "version", "created_at", "updated_at",
    "next", "last", "queued", *RunOutcome
)  # fmt: skip
"""Fields read for a listing: all but the work, which may be large."""
_TRIES: Final = 10
_WRONG_CLOCK_MS: Final = 86_400_000
"""A processed occurrence this far in the future shows that a clock was wrong: it is ignored."""

Check = Callable[[Schedule], None]


def _any(_: Schedule) -> None:
    """Allow any caller."""


@dataclass(frozen=True, slots=True)
class Due:
    """Names of due schedules, and the ms until the next one is due; None: there is no other."""

    names: tuple[str, ...]
    next_in_ms: int | None


class ScheduleBook:
    """All schedules of a namespace. A change is based on the version read, and retried if that has changed."""

    def __init__(self, connection: Connection, keys: Keys, scripts: Scripts, reads: Reads) -> None:
        self._connection = connection
        self._reads = reads
        self._keys = keys
        self._scripts = scripts

    async def put(
        self, name: str, definition: Definition, *, keep_paused: bool = False, check: Check = _any
    ) -> tuple[Schedule, bool]:
        """Create a schedule, or replace its definition; return it, and whether it is new.

        `keep_paused`: an existing one keeps its pause; a new one follows the definition. `check` raises an error
        if the caller may not replace the existing one.
        """
        version = ids.new_id()
        for _ in range(_TRIES):
            before, now_ms = await self.look(name)
            if before is not None:
                check(before)
            kept = before.definition.paused if before and keep_paused else definition.paused
            created = await self._store(name, before, version, replace(definition, paused=kept), now_ms)
            if created is not None:
                return await self.get(name), created
        raise StoreUnavailable(f"schedule {name} keeps changing: too many concurrent updates")

    async def pause(self, name: str, *, paused: bool, check: Check = _any) -> Schedule:
        """Pause or resume a schedule. Occurrences during the pause are neither fired nor missed."""
        version = ids.new_id()
        for _ in range(_TRIES):
            before, now_ms = await self.look(name)
            if before is None:
                raise NotFound("schedule", name)
            check(before)
            if before.definition.paused == paused:
                return before
            definition = replace(before.definition, paused=paused)
            if await self._store(name, before, version, definition, now_ms) is not None:
                return await self.get(name)
        raise StoreUnavailable(f"schedule {name} keeps changing: too many concurrent updates")

    async def _store(
        self, name: str, before: Schedule | None, version: str, definition: Definition, now_ms: int
    ) -> bool | None:
        """Write a definition based on the version read; return whether it is new, None if that has changed."""
        last_ms = None if before is None else before.last_at_ms
        match await self._scripts.schedule_put(
            name,
            "" if before is None else before.version,
            version,
            next_ms=_next_of(before, definition, now_ms),
            last_ms="" if last_ms is None else last_ms,
            fields=_fields(definition),
        ):
            case [b"SCHEDULED", created]:
                return bool(created)
            case [b"OTHERWISE"]:
                return None
            case reply:
                raise UnknownReply("schedule_put", reply)

    async def delete(self, name: str) -> None:
        """Delete a schedule; jobs it has started continue."""
        if (await self._scripts.schedule_delete(name))[0] == b"UNKNOWN":
            raise NotFound("schedule", name)

    async def get(self, name: str) -> Schedule:
        found, _ = await self.look(name)
        if found is None:
            raise NotFound("schedule", name)
        return found

    async def look(self, name: str) -> tuple[Schedule | None, int]:
        """Return a schedule, if there is one, and the time in ms on Redis' clock."""
        commands = [
            ("HGETALL", self._keys.schedule(name)),
            ("LRANGE", self._keys.schedule_runs(name), 0, SHOWN_RUNS - 1),
            ("TIME",),
        ]
        async with self._reads.turn() as connection:  # its work may be a large workflow
            reply, runs, time = await connection.each(commands)
        now_ms = redis_ms(time)
        if isinstance(reply, Exception):
            raise StoreBroken(f"schedule {name} is damaged in Redis", retry_after_s=5.0)
        if not reply:
            return None, now_ms
        schedule = _schedule(name, decode.row(reply), [] if isinstance(runs, Exception) else runs)
        if schedule is None:
            raise StoreBroken(f"schedule {name} is damaged in Redis", retry_after_s=5.0)
        return schedule, now_ms

    async def page(self, limit: int, cursor: str | None) -> SchedulePage:
        """Return schedules after `cursor` by name, without their work and runs."""
        start = "-" if cursor is None else f"({cursor}"
        async with self._reads.turn() as connection:
            found = await connection.call("ZRANGE", self._keys.schedules, start, "+", "BYLEX", "LIMIT", 0, limit + 1)
            names = [name.decode() for name in found]
            shown = names[:limit]
            replies = await connection.each([("HMGET", self._keys.schedule(name), *_LISTED) for name in shown])
        rows = [{} if isinstance(reply, Exception) else _present(reply) for reply in replies]
        schedules = [_schedule(name, row, ()) for name, row in zip(shown, rows, strict=True)]
        next_cursor = shown[-1] if len(names) > limit else None
        return SchedulePage(tuple(one for one in schedules if one is not None), next_cursor)

    async def due(self, offset: int, limit: int) -> Due:
        """Return due schedules, skipping the first `offset`."""
        reply, time = await self._connection.each(
            [("ZRANGE", self._keys.schedules_due, offset, offset + limit - 1, "WITHSCORES"), ("TIME",)]
        )
        if isinstance(reply, Exception):
            raise StoreBroken("the list of due schedules is damaged in Redis", retry_after_s=5.0)
        now_ms = redis_ms(time)
        if reply and isinstance(reply[0], bytes):
            reply = list(zip(reply[::2], reply[1::2], strict=True))
        scored = [(name.decode(), int(float(score))) for name, score in reply]
        names = tuple(name for name, score in scored if score <= now_ms)
        return Due(names, min((score - now_ms for _, score in scored if score > now_ms), default=None))

    async def move(self, schedule: Schedule, step: Step, what: str, *, number: int = 1, text: str = "") -> bool:
        """Advance a schedule without jobs, see `lua/schedule_advance.lua`; return False if it has changed."""
        reply = await self._scripts.schedule_advance(
            schedule.name,
            schedule.version,
            step.kind,
            at_ms=step.at_ms,
            last_ms=step.last_ms,
            following_ms="-" if step.following_ms is None else step.following_ms,
            what=what,
            number=number,
            text=text,
        )
        match reply:
            case [b"MOVED"]:
                return True
            case [b"OTHERWISE"]:
                return False
            case _:
                raise UnknownReply("schedule_advance", reply)

    async def was_aborted(self, batch: str) -> bool:
        """Return whether a large submission with this id was aborted: for a while, none can begin with it."""
        return bool(await self._connection.call("HGET", self._keys.batch(batch), "state") == b"aborted")


def _next_of(before: Schedule | None, definition: Definition, now_ms: int) -> Arg:
    """Return the next occurrence of a new definition, in the format of `lua/schedule_put.lua`.

    One already due stays due, unless it is processed before the script has run.
    """
    if definition.paused:
        return ""
    from_ms = now_ms
    if before is not None:
        old, last_ms = before.definition, before.last_at_ms or 0
        same = (old.cron, old.timezone, old.dst) == (definition.cron, definition.timezone, definition.dst)
        if same and before.next_at_ms is not None:
            return "="
        if last_ms < now_ms + _WRONG_CLOCK_MS:
            from_ms = max(now_ms, last_ms)
    next_ms = Times(definition.cron, definition.timezone, definition.dst).after(from_ms)
    return "" if next_ms is None else next_ms


def _fields(definition: Definition) -> Sequence[Arg]:
    kind = "workflow" if definition.is_workflow else "job"
    return [
        *("cron", definition.cron, "timezone", definition.timezone, "dst", definition.dst),
        *("overlap", definition.overlap, "catch_up", definition.catch_up),
        *("kind", kind, kind, orjson.dumps(definition.work)),
        *(("paused", "1") if definition.paused else ()),
        *(("key", definition.key) if definition.key is not None else ()),
    ]


def _present(values: Sequence[bytes | None]) -> Row:
    return {name: value for name, value in zip(_LISTED, values, strict=True) if value is not None}


def _schedule(name: str, row: Row, runs: Sequence[bytes]) -> Schedule | None:
    """Return the schedule of a hash; None if it can't be read."""
    try:
        return Schedule(
            name=name,
            version=row["version"].decode(),
            definition=_definition(row),
            created_at_ms=int(row["created_at"]),
            updated_at_ms=int(row["updated_at"]),
            next_at_ms=decode.number(row.get("next")),
            last_at_ms=decode.number(row.get("last")),
            queued_at_ms=decode.number(row.get("queued")),
            counts={outcome: int(row.get(outcome, b"0")) for outcome in RunOutcome},
            runs=tuple(_run(line.decode("utf-8", "replace")) for line in runs),
        )
    except (KeyError, ValueError, InvalidRequest):
        log.warning("schedule unreadable", schedule=name)
        return None


def _definition(row: Row) -> Definition:
    kind = row["kind"].decode()
    work: Mapping[str, Any] = orjson.loads(row[kind]) if kind in row else {}
    return Definition(
        cron=row["cron"].decode(),
        timezone=row["timezone"].decode(),
        dst=Dst(row["dst"].decode()),
        overlap=Overlap(row["overlap"].decode()),
        catch_up=CatchUp(row["catch_up"].decode()),
        paused="paused" in row,
        work=work,
        is_workflow=kind == "workflow",
        key=decode.text(row.get("key")),
    )


def _run(line: str) -> Run:
    run = formats.read_run(line)
    return Run(run.at_ms, RunOutcome(run.outcome), run.number, run.recorded_at_ms, run.job, run.workflow, run.error)
