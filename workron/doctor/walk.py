"""Scans all keys of a namespace, in pages, and checks each."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from workron.amounts import counted
from workron.doctor.bulk import Bulk
from workron.doctor.checks import Checks
from workron.doctor.edges import SLICE, edges
from workron.doctor.faults import Fault, shown, text_of
from workron.doctor.key_schema import Shape, shape_of
from workron.doctor.places import KINDS
from workron.doctor.progress import Say
from workron.doctor.reading import Maker, Reader
from workron.ids import is_id
from workron.redis.keys import Keys
from workron.redis.scripts import Scripts

_EVERYTHING: Final = 10**9


class Walk:
    """One pass over all keys; `keys` and `jobs` are their numbers."""

    def __init__(self, keys: Keys, scripts: Scripts, reader: Reader, say: Say) -> None:
        self._keys = keys
        self._reader = reader
        self._bulk = Bulk(keys, scripts, reader)
        self._say = say
        self._total = 0
        self.checks = Checks(keys)
        self.found: list[Fault] = []
        self.keys = 0
        self.jobs = 0
        self.counted: set[str] = set()
        """Hashes of counts: of queues, workflows, arrays and concurrency keys; without the prefix."""
        self.schedules: list[str] = []

    async def run(self) -> None:
        prefix = self._keys.prefix
        [self._total] = await self._reader.read([("DBSIZE",)])
        async for names in self._reader.scan("SCAN", match=f"{prefix}*"):
            self.keys += len(names)
            jobs, others = await self._in_bulk([name.removeprefix(prefix) for name in names])
            self.jobs += jobs
            await self._look_at(others)
            self._say("checking keys", self.keys, self._total)
        await self.ask([partial(self.checks.thing, "meta", "")])

    async def ask(self, makers: Sequence[Maker], side_by_side: int = 200) -> None:
        self.found += await self._reader.ask(makers, side_by_side)

    async def _in_bulk(self, names: Sequence[str]) -> tuple[int, list[str]]:
        """Return the number of jobs that certainly are in all their places, and the names of all other keys."""
        jobs = [name[4:] for name in names if name.startswith("job:") and is_id(name[4:])]
        wrong = await self._bulk.jobs(jobs)
        there = {f"job:{job}" for job in jobs if job not in wrong}
        return len(there), [name for name in names if name not in there]

    async def _look_at(self, names: Sequence[str]) -> None:
        types = await self._reader.read([("TYPE", self._keys.prefix + name) for name in names])
        makers: list[Maker] = []
        for name, kind in zip(names, map(text_of, types), strict=True):
            shape = shape_of(name, kind)
            if kind == "none":
                continue
            if shape is None:
                self.found.append(Fault("foreign", shown(name), f"a {kind}"))
            elif shape.type not in {"", kind}:
                makers.append(partial(self.checks.type, name, shape.type))
            else:
                makers += self._makers(name, shape)
                if shape.members:
                    await self._look_at_members(name, "SSCAN" if shape.type == "set" else "ZSCAN")
        await self.ask(makers)
        await self._look_at_edges()

    def _makers(self, name: str, shape: Shape) -> Iterator[Maker]:
        item = shape.item(name)
        if shape.lasts_ms:
            yield partial(self.checks.lasting, name, shape.lasts_ms)
        if shape.counts:
            self.counted.add(shape.counted(name))
        if shape.check == "job":
            self.jobs += 1
            yield partial(self.checks.job, item)
        elif shape.check in KINDS:
            yield partial(self.checks.thing, shape.check, item)
        elif shape.check:
            yield partial(getattr(self.checks, shape.check), item)
        if shape.check == "schedule":
            self.schedules.append(item)

    async def _look_at_members(self, index: str, command: str) -> None:
        seen = 0
        async for page in self._reader.scan(command, self._keys.prefix + index):
            seen += len(page)
            self._say(f"checking keys ({shown(index)}: {counted(seen, 'entry', 'entries')})", self.keys, self._total)
            some = await self._bulk.members(index, page)
            await self.ask([partial(self.checks.member, index, member) for member in some])

    async def _look_at_edges(self) -> None:
        """Check the edges of blocked jobs; a job with many edges in slices, so that no step is long."""
        blocked, self.checks.blocked = self.checks.blocked, {}
        few: list[Maker] = []
        for job, number in blocked.items():
            size = _EVERYTHING if self._reader.lock else SLICE
            slices: list[Maker] = [partial(edges, self._keys, job, at, size) for at in range(0, number, size)]
            if number <= SLICE:
                few += slices
            else:
                await self.ask(slices, side_by_side=1)
        await self.ask(few)
