"""One run from start to account."""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.chaos.account import Account
from tests.chaos.data_servers import KEYS, Ground
from tests.chaos.deployment import Deployment, Size, api_ports
from tests.chaos.faults import WEIGHTS, Faults, plan
from tests.chaos.judge import judge, recovery
from tests.chaos.load import Load
from tests.chaos.node import READY_S
from tests.chaos.proxy import Proxy
from tests.chaos.records import Events, executions
from tests.chaos.topologies import GROUNDS
from tests.consistency import Audit
from tests.patience import Patience
from workron.models import TERMINAL, Status
from workron.redis.connection import Connection
from workron.store import Store

REST_S: Final = 120.0
"""How long after the last fault the last job may end."""
PACE_S: Final = 1.5
"""Time between two faults, on average."""
_TELL_S: Final = 10.0


class Run:
    """One deployment under load while things go wrong."""

    def __init__(
        self,
        folder: Path,
        *,
        seed: int,
        seconds: float,
        topology: str = "single",
        kinds: Sequence[str] = tuple(WEIGHTS),
        size: Size | None = None,
        pace_s: float = PACE_S,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.account = Account(topology=topology, seed=seed, date=time.strftime("%Y-%m-%d %H:%M", time.gmtime()))
        self._folder = folder
        self._seed = seed
        self._seconds = seconds
        self._size = size or Size()
        self._pace_s = pace_s
        self._say = say
        self.ground: Ground = GROUNDS[topology](folder)
        self._kinds = [kind for kind in kinds if kind != "move" or self.ground.moves]

    async def run(self) -> Account:
        """Run it; whatever happens, nothing that was started here is left."""
        began_s = time.monotonic()
        ports = api_ports(self._size)
        door = Proxy(*ports)
        deployment: Deployment | None = None
        try:
            await self.ground.start()
            await door.start()
            deployment = Deployment(self._folder, self.ground.url, door.port, ports, self._size)
            deployment.start()
            await self._under_load(deployment, door)
            await deployment.stop()
            await self._audit()
        finally:
            if deployment is not None:
                deployment.kill()
                self.account.died_by_themselves = dict(deployment.died_by_themselves)
            await door.aclose()
            await self.ground.aclose()
        self.account.duration_s = time.monotonic() - began_s
        return self.account

    async def _under_load(self, deployment: Deployment, door: Proxy) -> None:
        events = Events(lambda: self.ground.primary.admin, KEYS.events, self._folder / "events")
        load = Load(door.port, self._folder, self._seed, events.ended)
        faults = Faults(deployment, self.ground, [*self.ground.proxies, door], self._seed)
        try:
            async with asyncio.TaskGroup() as group:
                beside = [group.create_task(events.follow()), group.create_task(self._tell(load, faults))]
                loading = group.create_task(load.run())
                await self._until_one_is_done(load, events)
                await self._go_wrong(faults)
                load.stop()
                await loading
                await self._rest()
                await events.catch_up(self.ground.primary.admin)
                for task in beside:
                    task.cancel()
        finally:
            await load.aclose()
        self.account.faults = dict(faults.done)
        self._load, self._events = load, events
        recovery(self.account, load, events, faults.at)

    async def _go_wrong(self, faults: Faults) -> None:
        if self._kinds:
            await faults.run(plan(self._seed, self._kinds, self._pace_s), time.monotonic() + self._seconds)
        else:
            await asyncio.sleep(self._seconds)

    async def _until_one_is_done(self, load: Load, events: Events) -> None:
        async with asyncio.timeout(120):
            while not any(events.ended(job_id) for job_id in load.acknowledged):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def _tell(self, load: Load, faults: Faults) -> None:
        began_s = time.monotonic()
        while True:
            await asyncio.sleep(_TELL_S)
            jobs, done = len(load.acknowledged), faults.done.total()
            self._say(f"{time.monotonic() - began_s:5.0f} s  {jobs} jobs, {load.open} open, {done} faults")

    async def _rest(self) -> None:
        """Wait until every job has ended, or long enough."""
        patience = Patience(REST_S)
        while not patience.is_over and await self._unfinished():  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        await asyncio.sleep(1.0)  # nothing more comes by itself

    async def _unfinished(self) -> int:
        counts = await self.ground.primary.admin.hgetall(KEYS.queue("default"))
        return sum(int(counts.get(status.encode(), 0)) for status in Status if status not in TERMINAL)

    async def _audit(self) -> None:
        admin = self.ground.primary.admin
        audit = Audit(admin, KEYS)
        async with Store(Connection.open(self.ground.url, key=KEYS.meta, budget_s=READY_S)) as store:
            report = await store.doctor.examine()
            self.account.rollbacks_told = (await store.health()).rollbacks
        faults = [f"{fault.code} {fault.about}: {fault.detail}" for fault in report.faults]
        self.account.audit = [*await audit.problems(), *faults, *filter(None, [report.uncounted])]
        info = await self.ground.primary.info("server")
        self.account.server = f"{info.get('server_name', 'redis')} {info.get('valkey_version', info['redis_version'])}"
        judge(self.account, self._load, self._events, audit.jobs, executions(self._folder / "ran"), self.ground)
