"""An audit of concurrency keys: who has a slot, who waits in which line, and that none waits for a free slot."""

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Final

from tests.snapshot import Snapshot
from workron.models import TERMINAL
from workron.redis.keys import Keys

Row = Mapping[str, str]
MOST_LET_GO: Final = 200
BAND: Final = 10**13


def by_name(jobs: Mapping[str, Row]) -> Iterator[tuple[str, str, Row]]:
    """Concurrency key, id and hash of each admitted job that has not ended; a task has that of its array."""
    for job_id, row in jobs.items():
        name = jobs.get(row.get("array", ""), row).get("concurrency")
        if name and "batch" not in row and row["status"] not in TERMINAL:
            yield name, job_id, row


class ConcurrencyAudit:
    """Counts anew what is said of concurrency keys; `held` are pending jobs that stand in no list."""

    def __init__(self, client: Snapshot, keys: Keys, jobs: Mapping[str, Row]) -> None:
        self._client = client
        self._keys = keys
        self._running: dict[str, set[str]] = defaultdict(set)
        self._waiting: dict[tuple[str, str], dict[str, Row]] = defaultdict(dict)
        self._counted: Counter[str] = Counter()
        self._held: Counter[str] = Counter()
        self.held: set[str] = set()
        for name, job_id, row in by_name(jobs):
            self._counted[name] += 1
            if row["status"] == "running":
                self._running[name].add(job_id)
            if row["status"] == "pending":
                self._waiting[name, row.get("queue", "default")][job_id] = row

    async def problems(self, queues: list[str]) -> list[str]:
        found = [problem async for problem in self._leftovers()]
        for name in self._counted:
            found += [f"concurrency key {name}: {problem}" async for problem in self._key(name)]
        for queue in queues:
            said = int(await self._client.hget(self._keys.queue(queue), "held") or 0)
            if said != self._held[queue]:
                found.append(f"queue {queue} counts {said} held, not {self._held[queue]}")
            keys = {one.decode() for one in await self._client.zrange(self._keys.concurrency_keys(queue), 0, -1)}
            if keys != {name for name, its in self._waiting if its == queue}:
                found.append(f"queue {queue} is said to have jobs of the keys {keys}")
        return found

    async def _leftovers(self) -> AsyncIterator[str]:
        prefix = self._keys.concurrency("")
        expected = {prefix + name for name in self._counted}
        expected |= {self._keys.slots(name) for name, ids in self._running.items() if ids}
        expected |= {self._keys.in_line(name, queue) for name, queue in self._waiting}
        expected |= {f"{prefix}{name}:queues" for name, _ in self._waiting}
        for key in {key.decode() async for key in self._client.scan_iter(f"{prefix}*", count=1000)} ^ expected:
            yield f"{key} is there, or not, against the jobs"
        async for member in self._client.zscan_iter(self._keys.due, "refill *"):
            if member[0].decode().partition(" ")[2] not in self._counted:
                yield f"{member[0].decode()} is due for a key without jobs"

    async def _key(self, name: str) -> AsyncIterator[str]:
        said = {k.decode(): v.decode() for k, v in (await self._client.hgetall(self._keys.concurrency(name))).items()}
        if int(said.get("jobs", 0)) != self._counted[name]:
            yield f"counts {said.get('jobs')} jobs, not {self._counted[name]}"
        slots = {one.decode() for one in await self._client.zrange(self._keys.slots(name), 0, -1)}
        if slots != self._running[name]:
            yield f"slots of {slots}, but {self._running[name]} run"
        queues = {q.decode() for q in await self._client.zrange(f"{self._keys.concurrency(name)}:queues", 0, -1)}
        if queues != {queue for its, queue in self._waiting if its == name}:
            yield f"waits in the queues {queues}"
        free = max(0, int(said.get("limit", 0)) - len(slots))
        again_at = await self._client.zscore(self._keys.due, f"refill {name}")
        to_go_on = again_at is not None and again_at <= int((await self._client.time())[0]) * 1000 + 1000
        for queue in queues:
            async for problem in self._line(name, queue, 0 if to_go_on else free):
                yield problem
        if again_at is not None and not to_go_on:
            yield "it is to be looked at later, and there is nothing to wait for"

    async def _line(self, name: str, queue: str, free: int) -> AsyncIterator[str]:
        line = dict(await self._client.zrange(self._keys.in_line(name, queue), 0, -1, withscores=True))
        places = {job_id.decode(): int(place) for job_id, place in line.items()}
        jobs = self._waiting[name, queue]
        for one in places.keys() ^ jobs.keys():
            yield f"{one} waits, or not, against the line of {queue}"
        held = {one for one, place in places.items() if place > 0}
        self.held |= held
        self._held[queue] += len(held)
        for one in places.keys() & jobs.keys():
            priority = jobs[one].get("priority", "5")
            if 9 - abs(places[one]) // BAND != int(priority):
                yield f"{one} has the place {places[one]}"
            if one not in held:
                listed = await self._client.lpos(self._keys.pending(queue, int(priority)), one)
                if listed is None:
                    yield f"{one} was let go, but is in no list"
        for one in sorted(places, key=lambda one: abs(places[one]))[: min(free, MOST_LET_GO)]:
            if one in held:
                yield f"{one} is held in {queue}, although {free} slots are free"
