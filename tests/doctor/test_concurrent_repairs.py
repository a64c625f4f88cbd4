"""Mends beside workers, while keys are damaged: no job is lost, none ends twice, none runs after its end."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from tests.array_jobs import BAD, array_job
from tests.builders import SUCCESS, after, claim, finish, new_job
from tests.servers import QUICK, Bench
from workron.errors import Conflict, InvalidRequest, NotFound, StoreUnavailable
from workron.models import Concurrency, NewJob, When
from workron.models.retry import RetryPolicy

REFUSED = (Conflict, InvalidRequest, NotFound, StoreUnavailable)
TERMINAL = ("done", "failed", "cancelled", "skipped")
ROUNDS = 60


class Ward:
    """Jobs that come and run, and hands that damage what is known of them: each one entry, field or key at a time."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - to be the same again
        self.bench, self.redis, self.keys = bench, bench.client, bench.keys
        self.store = bench.store(QUICK)
        self.stored: list[str] = []
        self.over = False
        self.mended = 0

    def jobs(self) -> list[NewJob]:
        if self.random.random() < 0.2:
            return [array_job(self.random.choice([3, 8]), max_parallel=self.random.choice([None, 2]))]
        parents = set(self.random.choices(self.stored[-20:], k=2)) if self.stored else set()
        edges = after(*parents, when=self.random.choice([*When])) if self.random.random() < 0.5 else ()
        key = Concurrency(self.random.choice("xy"), 2) if self.random.random() < 0.3 else None
        return [new_job(depends_on=edges, max_attempts=2, retry=RetryPolicy(delay_ms=20), concurrency=key)]

    async def submit(self) -> None:
        with suppress(*REFUSED):
            self.stored += (await self.store.submit([*self.jobs(), *self.jobs()])).ids

    async def work(self) -> None:
        claims = []
        with suppress(*REFUSED):
            claims = await claim(self.store, limit=3)
        for one in claims:
            with suppress(*REFUSED):
                await finish(self.store, one, BAD if self.random.random() < 0.2 else SUCCESS)

    async def damage(self) -> None:
        names = ["leases", "due", "jobs", "queue:default:blocked", "queue:default:done", "concurrency:x:running"]
        if member := await self.redis.zrandmember(name := self.keys.prefix + self.random.choice(names)):
            await self.redis.zrem(name, member)
        for pattern, hurt in self._blows():
            found = sorted([key async for key in self.redis.scan_iter(self.keys.prefix + pattern, count=500)])
            if found and self.random.random() < 0.3:
                with suppress(Exception):  # the key may have gone by itself
                    await hurt(self.random.choice(found))
        await self.redis.hincrby(self.keys.queue("default"), self.random.choice(["pending", "done"]), 3)

    def _blows(self) -> list[tuple[str, Callable[[bytes], Awaitable[object]]]]:
        redis = self.redis
        return [
            ("job:*:children", redis.delete),
            ("job:*:parents", redis.delete),
            ("queue:default:pending:5", lambda key: redis.lset(key, 0, "nobody")),
            ("array:*", lambda key: redis.hset(key, "made", "0")),
            ("array:*", redis.delete),
            ("propagate", redis.delete),
        ]

    async def keep_house(self) -> None:
        for step in (self.store.maintenance.reap, self.store.maintenance.promote, self.store.maintenance.tidy):
            with suppress(StoreUnavailable):
                await step()

    async def repeat(self, *does: Callable[[], Awaitable[None]]) -> None:
        while not self.over:
            for do in does:
                await do()
            await asyncio.sleep(0.01)

    async def mend(self) -> None:
        """Examine and mend; now and then whoever does it is stopped in the midst of it."""
        store = self.bench.store(QUICK)
        mending = asyncio.create_task(store.doctor.examine(rebuild=True))
        done, _ = await asyncio.wait([mending], timeout=self.random.choice([0.05, 5]))
        mending.cancel()
        await asyncio.wait([mending])
        self.mended += sum(len(task.result().mended) for task in done if task.exception() is None)
        await asyncio.sleep(0.2)

    async def open(self) -> list[str]:
        rows = {one: await self.redis.hget(self.keys.job(one), "status") for one in self.stored}
        return [one for one, status in rows.items() if (status or b"gone").decode() not in TERMINAL]


def wrong(events: list[dict[str, list[str]]]) -> list[str]:
    ended: set[str] = set()
    found = []
    for event in events:
        ends = [job for status in TERMINAL for job in event.get(status, ())]
        found += [f"{job} ended twice" for job in ends if job in ended]
        ended |= {*ends}
        found += [f"{job} ran after its end" for job in event.get("running", ()) if job in ended]
    return found


@pytest.mark.damaged
@pytest.mark.parametrize("bench", ["valkey", "redis"], indirect=True)
async def test_repairs_next_to_workers_lose_no_job_and_end_none_twice(
    bench: Bench, wait_until: Callable[..., Awaitable[None]]
) -> None:
    ward = Ward(bench, 1)
    beside = [ward.repeat(ward.work, ward.keep_house), ward.repeat(ward.mend), ward.repeat(ward.mend)]
    tasks = [asyncio.create_task(one) for one in beside]
    events: list[dict[str, list[str]]] = []
    last = "-"
    try:
        for _ in range(ROUNDS):
            await ward.submit()
            await ward.damage()
            for name, fields in await bench.client.xrange(bench.keys.events, last):
                events.append({status.decode(): ids.decode().split() for status, ids in fields.items()})
                last = f"({name.decode()}"

        async def all_have_ended() -> bool:
            return not await ward.open()

        await wait_until(all_have_ended, within_s=60)
    finally:
        ward.over = True
        await asyncio.gather(*tasks)
    for _, fields in await bench.client.xrange(bench.keys.events, last):
        events.append({status.decode(): ids.decode().split() for status, ids in fields.items()})
    assert ward.mended > 5
    assert wrong(events) == []
    await ward.store.doctor.examine(rebuild=True)
    assert (await ward.store.doctor.examine()).faults == ()
