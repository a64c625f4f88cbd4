"""The real store, made to run on a clock of its own and to lose replies: what the machine drives beside the model.

All is as it is elsewhere, but for one line of the scripts: they read the time from a key of the namespace. When time
passes, what Redis itself lets expire comes nearer by as much. All durations here are whole minutes: the moments
that a test takes meanwhile are rounded away.
"""

import asyncio
import functools
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.lua_source import SCRIPTS
from tests.model.recorded_calls import Asked, Move, Moved, moves_of
from tests.servers import Bench
from workron.errors import StoreUnavailable
from workron.redis.connection import Connection
from workron.redis.lane import Command
from workron.redis.scripts import Script
from workron.store import Store
from workron.store.policy import Policy

MINUTE = 60_000
START = 2_000_000_000_000
POLICY = Policy(
    lease_ms=2 * MINUTE,
    pass_ms=5 * MINUTE,
    retry_ms=MINUTE,
    retry_max_ms=60 * MINUTE,
    stop_ms=3 * MINUTE,
)
_REAL = "local TIME = redis.call('TIME')"
_OWN = "local TIME = redis.call('HMGET', P .. 'clock', 's', 'us')"


@functools.cache
def _script(name: str, shebang: bool) -> Script:
    source = Script.load(name, shebang=shebang).source
    assert source.count(_REAL.encode()) == 1
    source = source.replace(_REAL.encode(), _OWN.encode())
    return Script(source, hashlib.sha1(source, usedforsecurity=False).hexdigest())


@functools.cache
def _name_of(script: str | bytes) -> str:
    """The name of a script by its hash, or by its text."""
    return next(
        name
        for name in SCRIPTS
        for loaded in (_script(name, True), _script(name, False))
        if script in (loaded.sha, loaded.source)
    )


@dataclass
class Trouble:
    """What goes wrong with one call of a script, after `calls` that go well.

    `meanwhile`: something else is done in between: before the call, or before it is made `twice`.
    """

    calls: int = 0
    lost: bool = False
    twice: bool = False
    meanwhile: Callable[[], Awaitable[object]] | None = None


@dataclass
class Trace:
    """The calls about schedules since it was last taken, in the order in which the server did them."""

    moves: list[Move] = field(default_factory=list)
    calls: int = 0
    sent: list[Sequence[Any]] = field(default_factory=list)
    """The last calls that had to do with occurrences, as they were sent."""
    one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    def taken(self) -> list[Move]:
        moves, self.moves = self.moves, []
        return moves


class Connected(Connection):
    """A connection that tells the time of the test, and loses the reply to the next transition if told to."""

    now: int = START
    loses = False
    left: int | None = None
    """Transitions until the caller dies, with the reply to the last one; None: it lives."""
    trouble: Trouble | None = None
    number: int
    trace: Trace

    async def call(self, *command: str | int | float | bytes, repeat: bool = True) -> Any:
        if self.left == 0:
            raise StoreUnavailable("the caller is dead")
        if command[0] not in ("EVALSHA", "EVAL") or _name_of(command[1]) == "job_show":  # which only reads
            return await super().call(*command, repeat=repeat)
        trouble = self._trouble()
        if trouble.meanwhile and not trouble.twice:
            await trouble.meanwhile()
        reply = await self._make(command, repeat)
        if trouble.meanwhile and trouble.twice:
            await trouble.meanwhile()
        if trouble.twice:
            reply = await self._make(command, repeat)
        self.left = self.left and self.left - 1
        if self.loses or trouble.lost or self.left == 0:
            self.loses = False
            raise StoreUnavailable("the reply was lost")
        return reply

    def _trouble(self) -> Trouble:
        trouble = self.trouble or Trouble()
        trouble.calls -= 1
        if trouble.calls >= 0:
            return Trouble()
        self.trouble = None
        return trouble

    async def _make(self, command: Sequence[Any], repeat: bool) -> Any:
        async with self.trace.one_at_a_time:
            reply = await super().call(*command, repeat=repeat)
            self.trace.calls += 1
            moves = list(moves_of(self.number, self.trace.calls, _name_of(command[1]), command, reply))
            self.trace.moves += moves
            if any(isinstance(move, Asked | Moved) for move in moves):
                self.trace.sent = [*self.trace.sent, command][-20:]
        return reply

    def another(self, budget_s: float | None = None) -> Connection:
        return self

    async def each(self, commands: Sequence[Command]) -> list[Any]:
        replies = await super().each(commands)
        time = [b"%d" % (self.now // 1000), b"%d" % (self.now % 1000 * 1000)]
        return [time if command == ("TIME",) else reply for command, reply in zip(commands, replies, strict=True)]


class Bridge:
    """A store on a bench, and another one, on one clock."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.trace = Trace()
        self.connection, self.store = self._connected(1)
        self.other_connection, self.other_store = self._connected(2)

    def _connected(self, number: int) -> tuple[Connected, Store]:
        shebang = self.bench.url is not None
        connection = Connected(self.bench._client(), url=self.bench.url, budget_s=20)
        connection.number, connection.trace = number, self.trace
        store = Store(connection, namespace=self.bench.namespace, policy=POLICY, shebang=shebang)
        store.scripts._loaded.update({name: _script(name, shebang) for name in SCRIPTS})
        return connection, store

    async def set_clock(self, now: int) -> None:
        self.connection.now = self.other_connection.now = now
        key = f"{self.bench.keys.prefix}clock"
        await self.bench.client.hset(key, mapping={"s": str(now // 1000), "us": str(now % 1000 * 1000)})

    async def let_expire(self, minutes: int) -> None:
        """Bring nearer what Redis lets expire: the rest of its time, rounded up to minutes, less these."""
        names = [name async for name in self.bench.client.scan_iter(f"{self.bench.keys.prefix}*", count=1000)]
        reading = self.bench.client.pipeline(transaction=False)
        for name in names:
            reading.pttl(name)
        writing = self.bench.client.pipeline(transaction=False)
        for name, rest_ms in zip(names, await reading.execute(), strict=True):
            rest = -(-rest_ms // MINUTE) - minutes
            if rest_ms > 0:
                writing.pexpire(name, rest * MINUTE) if rest > 0 else writing.delete(name)
        await writing.execute()

    async def aclose(self) -> None:
        await self.store.aclose()
        await self.other_store.aclose()
        await self.bench.aclose()
