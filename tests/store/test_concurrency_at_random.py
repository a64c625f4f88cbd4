"""Concurrency keys under random operations: whatever is done, no key has too many jobs running, and none gets stuck."""

import asyncio
import random
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import pytest

from tests.array_jobs import BAD, array_job
from tests.builders import SUCCESS, after, claim, finish, jobs, new_job
from tests.consistency import Audit
from tests.servers import Bench
from workron.errors import Conflict
from workron.models import Claim, ClaimRequest, Concurrency, Moment, NewJob, QueueChange, Status
from workron.store import Store

QUEUES = ["default", "a", "b"]


class Life:
    """Jobs of a few keys in a few queues, and what is done with them."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench = bench
        self.store: Store = bench.store()
        self.random = random.Random(seed)  # noqa: S311 - to be the same again
        self.jobs: list[NewJob] = []
        self.running: list[Claim] = []

    async def submit(self) -> None:
        fields = {
            "queue": self.random.choice(QUEUES),
            "priority": self.random.choice([1, 5, 5, 9]),
            "max_attempts": self.random.choice([1, 2]),
            "delay_ms": self.random.choice([None, None, None, 1]),
            "concurrency": self.key(),
        }
        if self.jobs and self.random.random() < 0.2:
            fields["depends_on"] = after(self.random.choice(self.jobs).id)
        if self.random.random() < 0.2:
            size = self.random.randint(1, 8)
            many = [array_job(size, max_parallel=self.random.choice([None, 1, 3]), **fields)]
        else:
            expires = self.random.choice([None, None, None, Moment(after_ms=20)])
            many = jobs(self.random.randint(1, 6), expires=expires, **fields)
        await self.store.submit(many)
        self.jobs += many
        if fields["concurrency"] and "depends_on" not in fields:  # else it may be skipped at once
            assert await self.limit(fields["concurrency"].key) in (fields["concurrency"].limit, None)

    def key(self) -> Concurrency | None:
        name = self.random.choice(["k", "k", "l", None])
        return Concurrency(name, self.random.choice([1, 2, 2, 5])) if name else None

    async def limit(self, key: str) -> int | None:
        limit = await self.bench.client.hget(self.bench.keys.concurrency(key), "limit")
        return None if limit is None else int(limit)

    async def claim(self) -> None:
        queues = self.random.sample(QUEUES, self.random.randint(1, 3))
        before = await self.running_by_key()
        self.running += await claim(self.store, queues=queues, limit=self.random.randint(1, 8))
        for key, number in (await self.running_by_key()).items():
            assert number <= max(await self.limit(key) or 0, before[key])

    async def running_by_key(self) -> Counter[str]:
        audit = Audit(self.bench.client, self.bench.keys)
        await audit.read_jobs()
        keys = [audit.jobs.get(row.get("array", ""), row) for row in audit.jobs.values()
                if row["status"] == "running"]  # fmt: skip
        return Counter(row["concurrency"] for row in keys if "concurrency" in row)

    async def finish(self) -> None:
        self.random.shuffle(self.running)
        for _ in range(self.random.randint(1, 6)):
            if self.running:
                await finish(self.store, self.running.pop(), BAD if self.random.random() < 0.3 else SUCCESS)

    async def give_back(self) -> None:
        if self.running:
            one = self.running.pop()
            await self.store.attempts.release([(one.id, one.fence)])

    async def withdraw(self) -> None:
        request = ClaimRequest("w2", QUEUES, 3, f"boot:{self.random.random()}", inbox="in")
        await self.store.attempts.claim(request)
        await self.store.attempts.claim(replace(request, limit=0))

    async def cancel(self) -> None:
        with suppress(Conflict):
            await self.store.cancel(self.random.choice(self.jobs).id)

    async def retry(self) -> None:
        with suppress(Conflict):
            await self.store.retry(self.random.choice(self.jobs).id)

    async def pause(self) -> None:
        await self.store.change_queue(self.random.choice(QUEUES), QueueChange(paused=self.random.random() < 0.5))

    async def purge(self) -> None:
        if self.random.random() < 0.2:
            await self.store.purge_queue(self.random.choice(QUEUES))

    async def tidy(self) -> None:
        await self.store.maintenance.promote()
        await self.store.maintenance.tidy()
        await self.store.maintenance.propagate()

    async def step(self) -> None:
        often = [self.submit, self.submit, self.claim, self.claim, self.claim, self.finish, self.finish, self.tidy]
        rare = [self.give_back, self.withdraw, self.cancel, self.cancel, self.retry, self.pause, self.purge]
        await self.random.choice([*often, *rare])()

    async def check(self) -> None:
        assert await Audit(self.bench.client, self.bench.keys).problems() == []

    async def to_the_end(self) -> None:
        """Run what is left: everything ends then, and nothing is left of the keys."""
        for queue in QUEUES:
            await self.store.change_queue(queue, QueueChange(paused=False))
        while await self.left():
            await self.tidy()
            got = await claim(self.store, queues=QUEUES, limit=50)
            self.running += got
            while self.running:
                await finish(self.store, self.running.pop())
            if not got:
                await asyncio.sleep(0.01)
        assert [key async for key in self.bench.client.scan_iter(f"{self.bench.keys.concurrency('')}*")] == []

    async def left(self) -> bool:
        queues = await self.store.queues()
        waiting = (Status.PENDING, Status.SCHEDULED, Status.BLOCKED, Status.RUNNING)
        return any(queue.counts[status] for queue in queues for status in waiting)


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_is_done_with_jobs_of_a_key_their_limits_hold_and_all_end(
    bench: Bench, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workron.store.encode.MAX_JOBS", 3)  # larger submissions are staged, and admitted in steps
    life = Life(bench, seed)
    await life.store.submit([new_job()])
    await life.submit()
    for number in range(70):
        await life.step()
        if number % 4 == 0:
            await life.check()
    await asyncio.wait_for(life.to_the_end(), 30)
