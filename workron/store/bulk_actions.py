"""Bulk actions: created through the API, executed by the reapers in steps of bounded work, one script each.

A step and the progress of the action are written together: after a crash any reaper can continue the
action.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from workron.errors import Conflict, IdempotencyConflict, NotFound
from workron.models import Status
from workron.models.actions import ACTS_ON, Action, ActionFilter, ActionState, NewAction, Verb
from workron.redis.connection import Connection
from workron.redis.keys import Keys
from workron.redis.read_pool import Reads
from workron.redis.scripts import Arg, Scripts, UnknownReply
from workron.store import decode
from workron.store.decode import Row

LOOKS: Final = 300
STEP: Final = 100
"""Maximum of jobs to check, and to change, in one call."""
LEASE_MS: Final = 2000
"""Time after a step during which an action belongs to the reaper that made it."""
KEPT_MS: Final = 7 * 24 * 3600 * 1000
"""How long an ended action is listed."""
MOST_LISTED: Final = 1000
AT_ONCE: Final = 100
_TIMES: Final = ("created_after", "created_before", "finished_after", "finished_before")


class Actions:
    """The bulk actions of one namespace."""

    def __init__(self, connection: Connection, keys: Keys, scripts: Scripts, reads: Reads) -> None:
        self._connection = connection
        self._reads = reads
        self._keys = keys
        self._scripts = scripts

    async def order(self, new: NewAction) -> Action:
        """Store an action; a repeat with its id has no effect."""
        where = new.where
        statuses = ACTS_ON[new.verb] if where.status is None else (where.status,)
        reply = await self._scripts.bulk_create(
            new.id, new.fingerprint, " ".join(statuses), where.queue or "", where.workflow or "", _fields(new)
        )
        match reply:
            case [b"MISMATCH"]:
                raise IdempotencyConflict("this Idempotency-Key was used before with a different request body")
            case [b"ORDERED" | b"REPEATED"]:
                return await self.get(new.id)
            case _:
                raise UnknownReply("bulk_create", reply)

    async def get(self, action: str) -> Action:
        row = decode.row(await self._connection.call("HGETALL", self._keys.action(action)))
        if not row:
            raise NotFound("action", action)
        return _action(action, row)

    async def list(self, limit: int = 100) -> list[Action]:
        """Return the latest actions, newest first; an action is deleted a week after its end."""
        async with self._reads.turn() as connection:
            found = await connection.call("ZRANGE", self._keys.actions, 0, min(limit, MOST_LISTED) - 1, "REV")
            ids = [one.decode() for one in found]
            rows = await connection.pipeline([("HGETALL", self._keys.action(one)) for one in ids]) if ids else []
        return [_action(one, decode.row(row)) for one, row in zip(ids, rows, strict=True) if row]

    async def abort(self, action: str) -> Action:
        """Abort an action; raise Conflict if it has already ended."""
        match await self._scripts.bulk_abort(action, KEPT_MS):
            case [b"UNKNOWN"]:
                raise NotFound("action", action)
            case [b"OVER", state] if state != b"aborted":
                raise Conflict(f"action {action} has already ended: {state.decode()}")
            case [b"OVER" | b"HALTED", *_]:
                return await self.get(action)
            case reply:
                raise UnknownReply("bulk_abort", reply)

    async def step(self, reaper: str) -> bool:
        """Do a step of each action that no other reaper works on; return whether there may be more to do."""
        went_on = False
        for one in await self._connection.call("ZRANGE", self._keys.actions_open, 0, AT_ONCE - 1):
            match await self._scripts.bulk_step(one.decode(), reaper, LEASE_MS, LOOKS, STEP, KEPT_MS):
                case [b"ACTED", _, _]:
                    went_on = True
                case [b"BUSY" | b"OVER"]:
                    pass
                case reply:
                    raise UnknownReply("bulk_step", reply)
        return went_on


def _fields(new: NewAction) -> Sequence[Arg]:
    where = new.where
    fields: Mapping[str, Arg | None] = {
        "action": new.verb,
        "status": where.status,
        "name": where.name,
        "error": where.error,
        "tags": orjson.dumps(list(where.tags)) if where.tags else None,
        "created_after": where.created_after_ms,
        "created_before": where.created_before_ms,
        "finished_after": where.finished_after_ms,
        "finished_before": where.finished_before_ms,
        "to_queue": new.to_queue,
        "to_priority": new.to_priority,
        "dry_run": 1 if new.dry_run else None,
    }
    return [part for name, value in fields.items() if value is not None for part in (name, value)]


def _action(action: str, row: Row) -> Action:
    def count(name: str) -> int:
        return int(row.get(name, b"0"))

    return Action(
        id=action,
        verb=Verb(row["action"].decode()),
        state=ActionState(row["state"].decode()),
        where=_filter(row),
        to_queue=decode.text(row.get("to_queue")),
        to_priority=decode.number(row.get("to_priority")),
        dry_run="dry_run" in row,
        created_at_ms=int(row["created_at"]),
        finished_at_ms=decode.number(row.get("finished_at")),
        total=count("total"),
        looked=count("looked"),
        matched=count("matched"),
        done=count("done"),
        failed=count("failed"),
        first_error=decode.text(row.get("first_error")),
    )


def _filter(row: Row) -> ActionFilter:
    times: dict[str, Any] = {f"{name}_ms": decode.number(row.get(name)) for name in _TIMES}
    return ActionFilter(
        status=Status(row["status"].decode()) if "status" in row else None,
        queue=decode.text(row["queue"]) or None,
        name=decode.text(row.get("name")),
        workflow=decode.text(row["workflow"]) or None,
        error=decode.text(row.get("error")),
        tags=tuple(orjson.loads(row.get("tags", b"[]"))),
        **times,
    )
