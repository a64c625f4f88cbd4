"""`workron doctor` on a system at work: no false alarms, whatever moves while it looks; and bounded steps."""

import asyncio
import random
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from tests.array_jobs import BAD, array_job
from tests.builders import SUCCESS, after, claim, finish, jobs, new_job, submit
from tests.servers import QUICK, Bench
from workron.errors import Conflict, InvalidRequest, NotFound
from workron.models import Concurrency, QueueChange, Unique
from workron.models.retry import RetryPolicy
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
        await self.store.maintenance.promote()
        await self.store.maintenance.propagate()
        await self.store.maintenance.tidy()

    async def run(self) -> None:
        while True:
            doing = self.random.choice([self.submit, self.submit, self.work, self.work, self.steer, self.keep_house])
            await doing()
            self.rounds += 1


@pytest.mark.parametrize("rebuild", [False, True], ids=["look", "rebuild"])
async def test_it_finds_nothing_wrong_while_all_goes_on(
    bench: Bench, rebuild: bool, wait_until: Callable[..., Awaitable[None]]
) -> None:
    loads = [Load(bench, seed) for seed in range(4)]
    tasks = [asyncio.create_task(load.run()) for load in loads]
    try:
        doctor, compared, before = bench.store().doctor, 0, 0
        for _ in range(12):
            report = await doctor.examine(rebuild=rebuild)
            assert (report.faults, report.mended) == ((), ())
            compared += report.uncounted == ""
            if rebuild:  # they were held up
                await wait_until(lambda seen=before: sum(load.rounds for load in loads) > seen)
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
        said, right = re.findall(r"\d+", report.faults[0].detail)
        assert int(said) - int(right) == 3
        assert len((await bench.store().doctor.examine(rebuild=True)).mended) == 1
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
    survey, trims = store.scripts.doctor_survey, iter([True])

    async def forget_events(since: str, ids: bytes, commands: list[bytes]) -> object:
        if since != "-" and not ids and next(trims, False):
            await bench.client.xtrim(bench.keys.events, 0)
        return await survey(since, ids, commands)

    monkeypatch.setattr(store.scripts, "doctor_survey", forget_events)
    report = await store.doctor.examine()
    assert (report.faults, report.uncounted) == ((), "")

    async def lose_events(since: str, ids: bytes, commands: list[bytes]) -> object:
        return [b"LOST"] if since != "-" else await survey(since, ids, commands)

    monkeypatch.setattr(store.scripts, "doctor_survey", lose_events)
    assert "more happens than can be followed" in (await store.doctor.examine()).uncounted


@pytest.mark.damaged
async def test_edges_of_a_job_with_very_many_were_checked_in_one_call(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = bench.store()
    parents = await submit(store, *jobs(1000))
    (child,) = await submit(store, new_job(depends_on=after(*parents)))
    assert (await store.doctor.examine()).faults == ()
    calls: list[int] = []
    survey = store.scripts.doctor_survey

    async def count(since: str, ids: bytes, commands: list[bytes]) -> object:
        calls.append(len(commands))
        return await survey(since, ids, commands)

    monkeypatch.setattr(store.scripts, "doctor_survey", count)
    await bench.client.delete(f"{bench.keys.job(parents[4])}:children", f"{bench.keys.job(parents[900])}:children")
    found = (await store.doctor.examine()).faults
    assert {(fault.code, fault.about, fault.detail) for fault in found} == {
        ("wrong-edge", f"job {child}", f"{parents[4]} does not know of it"),
        ("wrong-edge", f"job {child}", f"{parents[900]} does not know of it"),
    }
    assert max(calls) < 10_000, "words of the commands that are run as of one moment"
    assert (await store.doctor.examine(rebuild=True)).faults == ()
