"""The real store, made to run on a clock of its own and to lose replies: what the machine drives beside the model.

All is as it is elsewhere, but for one line of the scripts: they read the time from a key of the namespace. When time
passes, what Redis itself lets expire comes nearer by as much. All lengths of time here are whole minutes: the moments
that a test takes meanwhile are rounded away.
"""

import functools
import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Any

from servers import Bench

from workron.connection import Connection
from workron.errors import StoreUnavailable
from workron.lane import Command
from workron.policy import Policy
from workron.scripts import Script
from workron.store import Store

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


class Connected(Connection):
    """A connection that tells the time of the test, and loses the reply to the next transition if told to."""

    now: int = START
    loses = False
    left: int | None = None
    """Transitions until the caller dies, with the reply to the last one; None: it lives."""

    async def call(self, *command: str | int | float | bytes, repeat: bool = True) -> Any:
        if self.left == 0:
            raise StoreUnavailable("the caller is dead")
        reply = await super().call(*command, repeat=repeat)
        if command[0] in ("EVALSHA", "EVAL"):
            self.left = self.left and self.left - 1
            if self.loses or self.left == 0:
                self.loses = False
                raise StoreUnavailable("the reply was lost")
        return reply

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        replies = await super().pipeline(commands)
        time = [b"%d" % (self.now // 1000), b"%d" % (self.now % 1000 * 1000)]
        return [time if command == ("TIME",) else reply for command, reply in zip(commands, replies, strict=True)]


class Bridge:
    """A store on a bench, and its clock."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.connection = Connected(bench._client(), url=bench.url, budget_s=20)
        self.store = Store(self.connection, namespace=bench.namespace, policy=POLICY, shebang=bench.url is not None)
        names = [path.name for path in resources.files("lua").iterdir() if path.name.endswith(".lua")]
        loaded = {
            name.removesuffix(".lua"): _script(name.removesuffix(".lua"), bench.url is not None) for name in names
        }
        self.store._scripts._loaded.update(loaded)

    async def set_clock(self, now: int) -> None:
        self.connection.now = now
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
        await self.bench.aclose()
