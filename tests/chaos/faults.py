"""What goes wrong, and when: a plan that a seed decides, and how each kind is done."""

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from redis.exceptions import RedisError

from tests.chaos.data_servers import Ground
from tests.chaos.deployment import Deployment, Process
from tests.chaos.proxy import Proxy

WEIGHTS: Final = {
    "kill": 10,
    "freeze": 6,
    "kill-guardian": 2,
    "kill-server": 3,
    "freeze-server": 2,
    "delay": 3,
    "lose-replies": 4,
    "cut": 4,
    "half-open": 3,
    "script-flush": 2,
    "client-kill": 3,
    "full-memory": 2,
    "rolling-restart": 1,
    "move": 3,
}
"""All kinds, and how often each comes, in proportion. `move`: another server gets the data."""
MEMORY_SHARE: Final = 0.7


@dataclass(frozen=True)
class Fault:
    after_s: float
    """Time since the fault before."""
    kind: str
    lasts_s: float
    place: float
    """Which of those that it can hit, 0..1."""


def plan(seed: int, kinds: Sequence[str], pace_s: float) -> Iterator[Fault]:
    """Yield faults for ever, the same ones for the same seed."""
    chance = random.Random(seed)  # noqa: S311
    while True:
        (kind,) = chance.choices(kinds, [WEIGHTS[kind] for kind in kinds])
        yield Fault(chance.uniform(0.3, 1.7) * pace_s, kind, chance.uniform(0.3, 5.0), chance.random())


class Faults:
    """Does what the plan says. A fault that lasts is over some seconds later; meanwhile come others."""

    def __init__(self, deployment: Deployment, ground: Ground, proxies: Sequence[Proxy], seed: int) -> None:
        self.done: Counter[str] = Counter()
        self.at: list[tuple[float, str]] = []
        """When each fault began, s since the epoch, and its kind."""
        self._deployment = deployment
        self._ground = ground
        self._proxies = proxies
        self._chance = random.Random(seed + 1)  # noqa: S311
        self._server = asyncio.Lock()
        """Held while the server is away or without memory: one such thing at a time."""

    async def run(self, faults: Iterator[Fault], until_s: float) -> None:
        """Do what is planned until that time (of the monotonic clock); return when all is as it was before."""
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                if time.monotonic() + fault.after_s > until_s:
                    return
                await asyncio.sleep(fault.after_s)
                group.create_task(self._do(fault))

    async def _do(self, fault: Fault) -> None:
        do: Callable[[Fault], Awaitable[object]] = getattr(self, f"_{fault.kind.replace('-', '_')}")
        self.done[fault.kind] += 1
        self.at.append((time.time(), fault.kind))
        with suppress(RedisError, OSError):  # the server is away for another reason
            await do(fault)

    async def _kill(self, fault: Fault) -> None:
        self._process(fault).signal(signal.SIGKILL)

    async def _kill_guardian(self, fault: Fault) -> None:
        workers = self._deployment.workers
        workers[int(fault.place * len(workers))].kill_guardian()

    async def _freeze(self, fault: Fault) -> None:
        process = self._process(fault)
        process.signal(signal.SIGSTOP)
        await asyncio.sleep(fault.lasts_s)
        process.signal(signal.SIGCONT)

    def _process(self, fault: Fault) -> Process:
        return self._deployment.processes[int(fault.place * len(self._deployment.processes))]

    async def _kill_server(self, fault: Fault) -> None:
        async with self._server:
            node = self._ground.primary
            node.kill()
            await asyncio.sleep(min(fault.lasts_s, 2.0))
            await node.start()
            await self._ground.settled()

    async def _freeze_server(self, fault: Fault) -> None:
        async with self._server:
            node = self._ground.primary
            node.signal(signal.SIGSTOP)
            await asyncio.sleep(min(fault.lasts_s, self._ground.standstill_s))
            node.signal(signal.SIGCONT)
            await self._ground.settled()

    async def _full_memory(self, fault: Fault) -> None:
        async with self._server:
            node = self._ground.primary
            used = (await node.info("memory"))["used_memory"]
            try:
                await node.admin.config_set("maxmemory", int(used * MEMORY_SHARE))
                await asyncio.sleep(fault.lasts_s)
            finally:
                await node.admin.config_set("maxmemory", 0)

    async def _script_flush(self, fault: Fault) -> None:
        await self._ground.primary.admin.script_flush()

    async def _client_kill(self, fault: Fault) -> None:
        for kind in ("normal", "pubsub"):
            await self._ground.primary.admin.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")

    async def _move(self, fault: Fault) -> None:
        async with self._server:
            await self._ground.move(fault.lasts_s)

    async def _rolling_restart(self, fault: Fault) -> None:
        await self._deployment.roll()

    async def _delay(self, fault: Fault) -> None:
        proxy = self._proxy(fault)
        proxy.delay_s = self._chance.choice([0.02, 0.1, 0.5, 1.5])
        await asyncio.sleep(fault.lasts_s)
        proxy.delay_s = 0.0

    async def _lose_replies(self, fault: Fault) -> None:
        self._proxy(fault).lose_replies(self._chance)

    async def _cut(self, fault: Fault) -> None:
        self._proxy(fault).cut(self._chance)

    async def _half_open(self, fault: Fault) -> None:
        self._proxy(fault).half_open(self._chance)

    def _proxy(self, fault: Fault) -> Proxy:
        return self._proxies[int(fault.place * len(self._proxies))]
