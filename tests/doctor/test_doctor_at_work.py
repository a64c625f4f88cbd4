"""`workron doctor` on a system at work: no false alarms, whatever moves while it looks; and bounded steps."""

import asyncio
import random
from contextlib import suppress

import pytest
from array_jobs import BAD, array_job
from builders import SUCCESS, after, claim, finish, jobs, new_job, submit
from servers import QUICK, Bench

from workron.errors import Conflict, InvalidRequest, NotFound
from workron.models import Concurrency, QueueChange, Unique
from workron.retries import RetryPolicy
from workron.store import Store

REFUSED = (Conflict, InvalidRequest, NotFound)
QUEUES = ["default", "b"]
pytestmark = pytest.mark.parametrize("bench", ["valkey", "redis"], indirect=True)


class Load:
    """Clients and workers that never rest."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - to be the same again
        self.store: Store = bench.store(QUICK)
        self.ids: list[str] = []
        self.rounds = 0

    def job(self) -> object:
        kind = self.random.random()
        if kind < 0.1:
            return array_job(self.random.randint(1, 5), queue=self.random.choice(QUEUES))
        parents = self.random.sample(self.ids[-30:], min(len(self.ids), self.random.choice([0, 0, 1, 2])))
        return new_job(
            queue=self.random.choice(QUEUES),
            max_attempts=self.random.choice([1, 2]),
            retry=RetryPolicy(delay_ms=self.random.choice([0, 20])),
            depends_on=after(*parents),
            concurrency=Concurrency(self.random.choice("xy"), 2) if kind < 0.3 else None,
            unique=Unique(self.random.choice("abc"), ttl_ms=60_000) if kind > 0.9 else None,
        )

    async def submit(self) -> None:
        with suppress(*REFUSED):
            self.ids += (await self.store.submit([self.job() for _ in range(self.random.randint(1, 4))])).ids  # type: ignore[misc]

    async def work(self) -> None:
        for one in await claim(self.store, queues=QUEUES, limit=self.random.randint(1, 8)):
            with suppress(*REFUSED):
                await finish(self.store, one, BAD if self.random.random() < 0.3 else SUCCESS)

    async def steer(self) -> None:
        for verb in (self.store.cancel, self.store.retry, self.store.delete):
            if self.ids:
                with suppress(*REFUSED):
                    await verb(self.random.choice(self.ids))
        await self.store.change_queue("b", QueueChange(paused=self.random.random() < 0.3))

    async def keep_house(self) -> None:
        await self.store.upkeep.promote()
        await self.store.upkeep.propagate()
        await self.store.upkeep.tidy()

    async def run(self) -> None:
        while True:
            doing = self.random.choice([self.submit, self.submit, self.work, self.work, self.steer, self.keep_house])
            await doing()
            self.rounds += 1


@pytest.mark.parametrize("repair", [False, True], ids=["look", "repair"])
async def test_it_finds_nothing_wrong_while_all_goes_on(bench: Bench, repair: bool) -> None:
    loads = [Load(bench, seed) for seed in range(4)]
    tasks = [asyncio.create_task(load.run()) for load in loads]
    try:
        doctor, compared, before = bench.store().doctor, 0, 0
        for _ in range(12):
            report = await doctor.examine(repair=repair)
            assert (report.faults, report.mended) == ((), ())
            compared += report.uncounted == ""
            assert sum(load.rounds for load in loads) > before, "nothing has moved meanwhile"
            before = sum(load.rounds for load in loads)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [one for one in results if not isinstance(one, asyncio.CancelledError)] == []
    assert compared == 12
    await loads[0].keep_house()


async def test_a_count_is_exact_while_all_goes_on(bench: Bench) -> None:
    load = Load(bench, 1)
    for _ in range(50):
        await load.submit()
    await bench.client.hincrby(bench.keys.queue("default"), "pending", 3)
    task = asyncio.create_task(load.run())
    try:
        report = await bench.store().doctor.examine()
        assert [(fault.code, fault.about) for fault in report.faults] == [("miscounted", "queue:default")]
        assert "by 3 too much" in report.faults[0].detail
        assert len((await bench.store().doctor.examine(repair=True)).mended) == 1
        assert (await bench.store().doctor.examine()).faults == ()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await load.keep_house()


async def test_the_doctor_broke_when_events_were_gone_before_all_counts_were_compared(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, load = bench.store(), Load(bench, 2)
    for _ in range(5):
        await load.submit()
    survey, trims = store._scripts.survey, iter([True])

    async def forget_events(since: str, name: bytes, ids: list[bytes]) -> object:
        if name and next(trims, False):
            await bench.client.xtrim(bench.keys.events, 0)
        return await survey(since, name, ids)

    monkeypatch.setattr(store._scripts, "survey", forget_events)
    report = await store.doctor.examine()
    assert (report.faults, report.uncounted) == ((), "")
    monkeypatch.setattr(store._scripts, "survey", lambda *_: _lost())
    assert "more happens than can be followed" in (await store.doctor.examine()).uncounted


async def _lost() -> list[bytes]:
    return [b"LOST"]


@pytest.mark.damaged
async def test_jobs_that_wait_for_many_others_were_looked_at_in_a_call_of_150_ms(bench: Bench) -> None:
    store = bench.store()
    parents = await submit(store, *jobs(10))
    children = [new_job(depends_on=after(*parents)) for _ in range(600)]
    for start in range(0, 600, 15):
        await submit(store, *children[start : start + 15])
    ids = [child.id.encode() for child in children[-100:]]
    _, looked, *found = await store.doctor._scripts.inspect(False, "job", ids)
    assert (0 < looked < 10, found) == (True, [])
    await bench.client.delete(f"{bench.keys.job(parents[4])}:children")
    report = await store.doctor.examine()
    assert {fault.about for fault in report.faults} == {f"job {child.id}" for child in children}
