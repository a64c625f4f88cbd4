"""The Lua transitions: loaded from `lua/`, one typed method each.

A method takes what the file's header names, in its order, and returns the reply as it is: a list that starts with a
status word. `Store` interprets it. Calls may be repeated, being idempotent by id, request id or fence — but not
`job_retry`, nor a `job_cancel` without a run: it could affect the next one. `attempt_claim` and `attempt_finish` are
repeated by their callers, which must know that a reply was lost.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from redis.exceptions import NoScriptError

from workron.redis.connection import Connection
from workron.redis.keys import Keys
from workron.redis.lane import Command
from workron.redis.script_source import assemble, read_all

Arg = str | int | float | bytes

_NEVER_REFUSED: Final = frozenset(
    {"array_advance", "array_discard", "array_tasks", "attempt_begin", "attempt_claim", "attempt_finish",
     "attempt_heartbeat", "attempt_release", "bulk_abort", "bulk_step", "doctor_jobs", "doctor_members",
     "doctor_rebuild", "doctor_survey",
     "job_cancel", "job_delete", "job_output", "job_parents", "job_retry", "job_show", "key_revoke",
     "maintain_measure", "maintain_promote", "maintain_propagate", "maintain_reap", "maintain_repair",
     "maintain_sweep", "maintain_trim", "queue_configure", "queue_limit", "queue_purge", "queue_remove",
     "schedule_advance", "schedule_delete", "submission_abort", "submission_admit", "worker_drain", "worker_leave",
     "workflow_cancel"}
)  # fmt: skip
"""Allowed when Redis' memory is full, so that a full server drains."""
_NEVER_LOCKED: Final = frozenset(
    {
        "attempt_heartbeat",
        "job_parents",
        "doctor_jobs",
        "doctor_members",
        "doctor_survey",
        "doctor_rebuild",
        "job_show",
        "job_output",
    }
)
"""Allowed during a `workron doctor --rebuild`: they read, or renew leases."""


@dataclass(frozen=True, slots=True)
class Script:
    """A transition's whole source and its SHA-1, by which Redis knows it."""

    source: bytes
    sha: str

    @classmethod
    def load(cls, name: str, *, shebang: bool) -> "Script":
        """Assemble `lua/<name>.lua` and the parts of `lua/lib` that it uses (see `script_source`).

        `shebang`: begin with `#!lua`, by which real servers check keys and memory; fakeredis can't parse it.
        """
        text = assemble(name, locked=name not in _NEVER_LOCKED)
        first = "#!lua flags=allow-oom\n" if name in _NEVER_REFUSED else "#!lua\n"
        source = ((first if shebang else "") + text).encode()
        return cls(source, hashlib.sha1(source, usedforsecurity=False).hexdigest())


class UnknownReply(AssertionError):
    """A script returned an unknown status word: caller and script have different versions."""

    def __init__(self, script: str, reply: Any) -> None:
        super().__init__(f"unknown reply of lua/{script}.lua: {reply!r}")


class Scripts:
    """Calls the transitions of one namespace."""

    def __init__(self, connection: Connection, keys: Keys, *, shebang: bool = True) -> None:
        self._connection = connection
        self._keys = (keys.meta, keys.guard)
        self._shebang = shebang
        self._loaded: dict[str, Script] = {}

    def load(self) -> None:
        """Read all files now: later there may be none left to open, or another version in their place."""
        read_all()

    def _script(self, name: str) -> Script:
        script = self._loaded.get(name)
        if script is None:
            script = self._loaded[name] = Script.load(name, shebang=self._shebang)
        return script

    async def _run(self, name: str, *args: Arg, repeat: bool = True, on: Connection | None = None) -> Any:
        connection, script = on or self._connection, self._script(name)
        try:
            return await connection.call("EVALSHA", script.sha, 2, *self._keys, *args, repeat=repeat)
        except NoScriptError:
            return await connection.call("EVAL", script.source, 2, *self._keys, *args, repeat=repeat)

    async def job_submit(self, ttl_ms: int, submissions: Iterable[Arg]) -> Any:
        return await self._run("job_submit", ttl_ms, *submissions)

    async def submission_stage(
        self,
        *,
        batch: str,
        chunk: int,
        workflow: str,
        key: str,
        fingerprint: str,
        size: int,
        reserve: str,
        jobs: Iterable[Arg],
    ) -> Any:
        return await self._run("submission_stage", batch, chunk, workflow, key, fingerprint, size, reserve, *jobs)

    async def submission_open(
        self,
        *,
        batch: str,
        chunks: int,
        workflow: str,
        new: bytes,
        key: str,
        fingerprint: str,
        ttl_ms: int,
        first: str,
        size: int,
    ) -> Any:
        return await self._run("submission_open", batch, chunks, workflow, new, key, fingerprint, ttl_ms, first, size)

    async def submission_admit(self, batch: str) -> Any:
        return await self._run("submission_admit", batch)

    async def array_values(self, job_id: str, offset: int, ttl_ms: int, values: Sequence[Arg]) -> Any:
        return await self._run("array_values", job_id, offset, ttl_ms, *values)

    async def array_discard(self, job_ids: Sequence[str]) -> Any:
        return await self._run("array_discard", *job_ids)

    async def array_tasks(self, job_id: str, what: str, places: Sequence[int]) -> Any:
        return await self._run("array_tasks", job_id, what, *places)

    async def array_advance(self, job_id: str | bytes, limit: int) -> Any:
        return await self._run("array_advance", job_id, limit)

    async def submission_abort(self, batch: str, idle_ms: int) -> Any:
        return await self._run("submission_abort", batch, idle_ms)

    async def attempt_claim(
        self,
        *,
        worker: str,
        request: str,
        queues: str,
        limit: int,
        lease_ms: int,
        floor: int,
        park_ms: int,
        inbox: str,
        begins: bool,
        behind: tuple[Connection, Command] | None = None,
    ) -> Any:
        """`behind`: a connection of its own, and a command that blocks there until this one is to be run."""
        args = (worker, request, queues, limit, lease_ms, floor, park_ms, inbox, int(begins))
        if behind is not None:
            connection, waiting = behind
            call = ("EVALSHA", self._script("attempt_claim").sha, 2, *self._keys, *args)
            reply = await connection.behind(waiting, call)
            if not isinstance(reply, NoScriptError):
                return reply
        return await self._run("attempt_claim", *args, repeat=False)

    async def attempt_finish(
        self,
        *,
        worker: str,
        request: str,
        queues: str,
        limit: int,
        lease_ms: int,
        floor: int,
        park_ms: int,
        inbox: str,
        begins: bool,
        retry_ms: int,
        retry_max_ms: int,
        successes: str,
        results: Iterable[Arg],
    ) -> Any:
        claim = (worker, request, queues, limit, lease_ms, floor, park_ms, inbox, int(begins))
        return await self._run("attempt_finish", *claim, retry_ms, retry_max_ms, successes, *results, repeat=False)

    async def attempt_begin(self, job_id: str, fence: int) -> Any:
        return await self._run("attempt_begin", job_id, fence)

    async def attempt_heartbeat(
        self, worker: str, lease_ms: int, stop_ms: int, about: bytes, held: Sequence[Arg]
    ) -> Any:
        return await self._run("attempt_heartbeat", worker, lease_ms, stop_ms, about, *held)

    async def worker_drain(self, worker: str, wish: str) -> Any:
        return await self._run("worker_drain", worker, wish)

    async def worker_leave(self, worker: str) -> Any:
        return await self._run("worker_leave", worker)

    async def attempt_release(self, held: Sequence[Arg]) -> Any:
        return await self._run("attempt_release", *held)

    async def attempt_output(self, patches: Sequence[Arg]) -> Any:
        return await self._run("attempt_output", *patches)

    async def job_output(self, job_id: str, fence: Arg, offset: int, *, on: Connection) -> Any:
        return await self._run("job_output", job_id, fence, offset, on=on)

    async def job_parents(self, job_id: str, at: int, limit: int, room: int, *, on: Connection) -> Any:
        return await self._run("job_parents", job_id, at, limit, room, on=on)

    async def job_cancel(self, job_id: str, run: str, *, cascade: bool = False) -> Any:
        return await self._run("job_cancel", job_id, run, int(cascade), repeat=bool(run))

    async def workflow_cancel(self, workflow: str) -> Any:
        return await self._run("workflow_cancel", workflow, repeat=False)

    async def job_retry(self, job_id: str, run: str) -> Any:
        return await self._run("job_retry", job_id, run, repeat=False)

    async def job_delete(self, job_id: str) -> Any:
        return await self._run("job_delete", job_id)

    async def bulk_create(
        self, action: str, fingerprint: str, statuses: str, queue: str, workflow: str, fields: Sequence[Arg]
    ) -> Any:
        return await self._run("bulk_create", action, fingerprint, statuses, queue, workflow, *fields)

    async def bulk_abort(self, action: str, keep_ms: int) -> Any:
        return await self._run("bulk_abort", action, keep_ms)

    async def bulk_step(self, action: str, reaper: str, lease_ms: int, looks: int, limit: int, keep_ms: int) -> Any:
        return await self._run("bulk_step", action, reaper, lease_ms, looks, limit, keep_ms)

    async def maintain_reap(self, pass_ms: int, lease_ms: int, stop_ms: int, limit: int, excess: str, seen: int) -> Any:
        return await self._run("maintain_reap", pass_ms, lease_ms, stop_ms, limit, excess, seen)

    async def maintain_promote(self, limit: int, queues: Sequence[str | bytes]) -> Any:
        return await self._run("maintain_promote", limit, *queues)

    async def maintain_propagate(self, limit: int) -> Any:
        return await self._run("maintain_propagate", limit)

    async def maintain_measure(self, limit: int) -> Any:
        return await self._run("maintain_measure", limit)

    async def queue_limit(self, scope: str, most: Arg) -> Any:
        return await self._run("queue_limit", scope, most)

    async def queue_configure(self, queue: str, fields: Sequence[Arg]) -> Any:
        return await self._run("queue_configure", queue, *fields)

    async def queue_purge(self, queue: str, limit: int) -> Any:
        return await self._run("queue_purge", queue, limit)

    async def queue_remove(self, queue: str) -> Any:
        return await self._run("queue_remove", queue)

    async def schedule_put(
        self, name: str, seen: str, version: str, *, next_ms: Arg, last_ms: Arg, fields: Sequence[Arg]
    ) -> Any:
        return await self._run("schedule_put", name, seen, version, next_ms, last_ms, *fields)

    async def schedule_delete(self, name: str) -> Any:
        return await self._run("schedule_delete", name)

    async def schedule_advance(
        self,
        name: str,
        version: str,
        kind: str,
        *,
        at_ms: int,
        last_ms: int,
        following_ms: Arg,
        what: str,
        number: int = 1,
        text: str = "",
    ) -> Any:
        return await self._run(
            "schedule_advance", name, version, kind, at_ms, last_ms, following_ms, what, number, text
        )

    async def maintain_repair(self, cursor: bytes, count: int) -> Any:
        return await self._run("maintain_repair", cursor, count)

    async def doctor_survey(self, since: str, jobs: str | bytes, commands: Sequence[Arg]) -> Any:
        return await self._run("doctor_survey", since, jobs, *commands)

    async def job_show(self, room: int, ids: Sequence[Arg], *, on: Connection) -> Any:
        return await self._run("job_show", room, *ids, on=on)

    async def doctor_jobs(self, jobs: str) -> Any:
        return await self._run("doctor_jobs", jobs)

    async def doctor_members(self, jobs: str, status: str, queue: str) -> Any:
        return await self._run("doctor_members", jobs, status, queue)

    async def doctor_rebuild(self, token: str, lease_ms: int, step: int, commands: Sequence[Arg]) -> Any:
        return await self._run("doctor_rebuild", token, lease_ms, step, *commands)

    async def key_create(
        self, key_id: str, name: str, ttl_ms: Arg, most: int, kept_ms: int, fields: Sequence[Arg]
    ) -> Any:
        return await self._run("key_create", key_id, name, ttl_ms, most, kept_ms, *fields)

    async def key_revoke(self, key_id: str) -> Any:
        return await self._run("key_revoke", key_id)

    async def audit_append(self, most: int, entries: Sequence[Arg]) -> Any:
        return await self._run("audit_append", most, *entries)

    async def maintain_sweep(self, status: str, keep_ms: int, place: str, limit: int, looks: int) -> Any:
        return await self._run("maintain_sweep", status, keep_ms, place, limit, looks)

    async def maintain_trim(self, queue: str, priority: int, skip: int, limit: int) -> Any:
        return await self._run("maintain_trim", queue, priority, skip, limit)
