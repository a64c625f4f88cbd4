"""The Lua transitions: loaded from `lua/`, one typed method each.

A method takes what the file's header names, in its order, and returns the reply as it is: a list that starts with a
status word. `Store` interprets it. Calls may be repeated, being idempotent by id, request id or fence — but not
`retry`, nor a `cancel` without a run: it could affect the next one. `claim` and `finish` are repeated by their callers,
which must know that a reply was lost.
"""

import functools
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Final

from redis.exceptions import NoScriptError

from workron.redis.connection import Connection
from workron.redis.keys import Keys
from workron.redis.lane import Command

Arg = str | int | float | bytes

_USES: Final = re.compile(r"^-- uses: (.+)$", re.MULTILINE)
_NEVER_REFUSED: Final = frozenset(
    {"claim", "finish", "begin", "heartbeat", "release", "cancel", "stop", "retry", "reap", "promote",
     "propagate", "sweep", "trim", "parents", "admit", "abort", "limit", "measure", "drain", "leave", "array", "tasks",
     "gate", "purge", "forget", "delete", "act", "halt", "fire", "unschedule", "survey", "look", "rebuild",
     "revoke", "discard", "show", "follow"}
)  # fmt: skip
"""Allowed when Redis' memory is full, so that a full server drains."""
_NEVER_PAUSED: Final = frozenset({"heartbeat", "parents", "survey", "rebuild", "show", "follow"})
"""Allowed while `workron doctor --rebuild` holds up the others: they read, or renew what there is."""


@functools.cache
def _folder() -> Traversable:
    return resources.files("lua")


@functools.cache
def _text(*path: str) -> str:
    """Read a file once: most parts are in many scripts."""
    return _folder().joinpath(*path).read_text("utf-8")


@dataclass(frozen=True, slots=True)
class Script:
    """A transition's whole source and its SHA-1, by which Redis knows it."""

    source: bytes
    sha: str

    @classmethod
    def load(cls, name: str, *, shebang: bool) -> "Script":
        """Read `lua/<name>.lua` and put in front the parts of `lua/lib` that it uses; `pause` behind the first, core.

        `shebang`: begin with `#!lua`, by which real servers check keys and memory; fakeredis can't parse it.
        """
        body = _text(f"{name}.lua")
        uses = _USES.search(body)
        if uses is None:
            raise ValueError(f"lua/{name}.lua does not say what it uses")
        names = uses[1].split()
        if name not in _NEVER_PAUSED:
            names.insert(1, "pause")
        parts = [_text("lib", f"{part}.lua") for part in names]
        first = "#!lua flags=allow-oom\n" if name in _NEVER_REFUSED else "#!lua\n"
        source = ((first if shebang else "") + "\n".join([*parts, body])).encode()
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
        """Read all of them now: later there may be no file left to open, or another version in their place."""
        for file in _folder().iterdir():
            name, dot, kind = file.name.partition(".")
            if dot and kind == "lua":
                self._loaded[name] = Script.load(name, shebang=self._shebang)

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

    async def submit(self, ttl_ms: int, submissions: Iterable[Arg]) -> Any:
        return await self._run("submit", ttl_ms, *submissions)

    async def stage(
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
        return await self._run("stage", batch, chunk, workflow, key, fingerprint, size, reserve, *jobs)

    async def open(
        self,
        *,
        batch: str,
        chunks: int,
        workflow: str,
        name: str,
        key: str,
        fingerprint: str,
        ttl_ms: int,
        first: str,
        size: int,
    ) -> Any:
        return await self._run("open", batch, chunks, workflow, name, key, fingerprint, ttl_ms, first, size)

    async def admit(self, batch: str) -> Any:
        return await self._run("admit", batch)

    async def values(self, job_id: str, offset: int, ttl_ms: int, values: Sequence[Arg]) -> Any:
        return await self._run("values", job_id, offset, ttl_ms, *values)

    async def discard(self, job_ids: Sequence[str]) -> Any:
        return await self._run("discard", *job_ids)

    async def tasks(self, job_id: str, what: str, places: Sequence[int]) -> Any:
        return await self._run("tasks", job_id, what, *places)

    async def array(self, job_id: str | bytes, limit: int) -> Any:
        return await self._run("array", job_id, limit)

    async def abort(self, batch: str, idle_ms: int) -> Any:
        return await self._run("abort", batch, idle_ms)

    async def claim(
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
            call = ("EVALSHA", self._script("claim").sha, 2, *self._keys, *args)
            reply = await connection.behind(waiting, call)
            if not isinstance(reply, NoScriptError):
                return reply
        return await self._run("claim", *args, repeat=False)

    async def finish(
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
        return await self._run("finish", *claim, retry_ms, retry_max_ms, successes, *results, repeat=False)

    async def begin(self, job_id: str, fence: int) -> Any:
        return await self._run("begin", job_id, fence)

    async def heartbeat(self, worker: str, lease_ms: int, stop_ms: int, about: bytes, held: Sequence[Arg]) -> Any:
        return await self._run("heartbeat", worker, lease_ms, stop_ms, about, *held)

    async def drain(self, worker: str, wish: str) -> Any:
        return await self._run("drain", worker, wish)

    async def leave(self, worker: str) -> Any:
        return await self._run("leave", worker)

    async def release(self, held: Sequence[Arg]) -> Any:
        return await self._run("release", *held)

    async def output(self, patches: Sequence[Arg]) -> Any:
        return await self._run("output", *patches)

    async def follow(self, job_id: str, fence: Arg, offset: int, *, on: Connection) -> Any:
        return await self._run("follow", job_id, fence, offset, on=on)

    async def parents(self, job_id: str, at: int, limit: int, room: int, *, on: Connection) -> Any:
        return await self._run("parents", job_id, at, limit, room, on=on)

    async def cancel(self, job_id: str, run: str, *, cascade: bool = False) -> Any:
        return await self._run("cancel", job_id, run, int(cascade), repeat=bool(run))

    async def stop(self, workflow: str) -> Any:
        return await self._run("stop", workflow, repeat=False)

    async def retry(self, job_id: str, run: str) -> Any:
        return await self._run("retry", job_id, run, repeat=False)

    async def delete(self, job_id: str) -> Any:
        return await self._run("delete", job_id)

    async def order(
        self, action: str, fingerprint: str, statuses: str, queue: str, workflow: str, fields: Sequence[Arg]
    ) -> Any:
        return await self._run("order", action, fingerprint, statuses, queue, workflow, *fields)

    async def halt(self, action: str, keep_ms: int) -> Any:
        return await self._run("halt", action, keep_ms)

    async def act(self, action: str, reaper: str, lease_ms: int, looks: int, limit: int, keep_ms: int) -> Any:
        return await self._run("act", action, reaper, lease_ms, looks, limit, keep_ms)

    async def reap(self, pass_ms: int, lease_ms: int, stop_ms: int, limit: int, excess: str, seen: int) -> Any:
        return await self._run("reap", pass_ms, lease_ms, stop_ms, limit, excess, seen)

    async def promote(self, limit: int, queues: Sequence[str | bytes]) -> Any:
        return await self._run("promote", limit, *queues)

    async def propagate(self, limit: int) -> Any:
        return await self._run("propagate", limit)

    async def measure(self, limit: int) -> Any:
        return await self._run("measure", limit)

    async def limit(self, scope: str, most: Arg) -> Any:
        return await self._run("limit", scope, most)

    async def gate(self, queue: str, fields: Sequence[Arg]) -> Any:
        return await self._run("gate", queue, *fields)

    async def purge(self, queue: str, limit: int) -> Any:
        return await self._run("purge", queue, limit)

    async def forget(self, queue: str) -> Any:
        return await self._run("forget", queue)

    async def schedule(
        self, name: str, seen: str, version: str, *, next_ms: Arg, last_ms: Arg, fields: Sequence[Arg]
    ) -> Any:
        return await self._run("schedule", name, seen, version, next_ms, last_ms, *fields)

    async def unschedule(self, name: str) -> Any:
        return await self._run("unschedule", name)

    async def fire(
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
        return await self._run("fire", name, version, kind, at_ms, last_ms, following_ms, what, number, text)

    async def look(self, cursor: bytes, count: int) -> Any:
        return await self._run("look", cursor, count)

    async def survey(self, since: str, jobs: str | bytes, commands: Sequence[Arg]) -> Any:
        return await self._run("survey", since, jobs, *commands)

    async def show(self, room: int, ids: Sequence[Arg], *, on: Connection) -> Any:
        return await self._run("show", room, *ids, on=on)

    async def rebuild(self, token: str, lease_ms: int, commands: Sequence[Arg]) -> Any:
        return await self._run("rebuild", token, lease_ms, *commands)

    async def grant(self, key_id: str, name: str, ttl_ms: Arg, most: int, kept_ms: int, fields: Sequence[Arg]) -> Any:
        return await self._run("grant", key_id, name, ttl_ms, most, kept_ms, *fields)

    async def revoke(self, key_id: str) -> Any:
        return await self._run("revoke", key_id)

    async def note(self, most: int, entries: Sequence[Arg]) -> Any:
        return await self._run("note", most, *entries)

    async def sweep(self, status: str, keep_ms: int, place: str, limit: int, looks: int) -> Any:
        return await self._run("sweep", status, keep_ms, place, limit, looks)

    async def trim(self, queue: str, priority: int, skip: int, limit: int) -> Any:
        return await self._run("trim", queue, priority, skip, limit)
