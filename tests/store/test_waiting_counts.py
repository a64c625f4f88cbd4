"""Whatever happens to jobs, in whatever order: what counts against the limits is what waits."""

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.budget import budget
from tests.builders import claim, jobs, new_job, submit
from tests.queue_limits import refused
from tests.servers import Bench
from workron import ids
from workron.errors import Conflict, InvalidRequest, NotFound, QueueFull, StoreUnavailable
from workron.models import Claim, ClaimRequest, Dependency, NewJob, Outcome, Reason, Result, When
from workron.settings import Settings
from workron.store.policy import Policy

QUEUES = ("a", "b", "c")
MOST, MOST_IN_ALL = 700, 1_200
POLICY = Policy(lease_ms=30, pass_ms=10, retry_ms=1, retry_max_ms=2, retention_done_ms=20, retention_failed_ms=20)


class Died(BaseException):
    """What stands for the death of a process between two calls."""


class Chaos:
    """Does one random thing after the other to a namespace, by one of two stores."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - not a secret
        self.bench = bench
        self.stores = [bench.store(POLICY) for _ in range(2)]
        self.ids: list[str] = []
        self.held: list[Claim] = []
        self.requests = 0
        self.did: list[str] = []

    @property
    def store(self) -> Any:
        return self.random.choice(self.stores)

    def jobs(self, size: int) -> list[NewJob]:
        many = [new_job(id=one, queue=self.random.choice(QUEUES)) for one in ids.new_ids(size)]
        for number, job in enumerate(many):
            job.max_attempts = self.random.choice((1, 3))
            job.delay_ms = self.random.choice((0, 0, 0, 1, 60_000))
            parents = [*self.ids[-20:], *(other.id for other in many[max(0, number - 5) : number])]
            chosen = self.random.sample(parents, min(len(parents), self.random.choice((0, 0, 1, 2))))
            job.depends_on = tuple(Dependency(one, self.random.choice(list(When))) for one in chosen)
        return many

    async def submit(self) -> None:
        await self._submit(self.random.choice((1, 1, 2, 7, 30)))

    async def submit_large(self) -> None:
        await self._submit(self.random.choice((410, 650)))

    async def _submit(self, size: int) -> None:
        many = self.jobs(size)
        await self.store.submit(many, as_workflow=self.random.random() < 0.3)
        self.ids += [job.id for job in many]

    async def submitter_dies(self) -> None:
        """Between any two calls: while it stages, before or after it opens, while it admits."""
        store, calls = self.store, self.random.randrange(6)
        scripts, submitter = store.scripts, store.submitter
        run = scripts._run

        async def dying(name: str, *args: Any, **options: Any) -> Any:
            nonlocal calls
            calls -= 1
            if calls < 0:
                raise Died if name in ("submission_stage", "submission_open") else StoreUnavailable("it died")
            return await run(name, *args, **options)

        scripts._run = dying
        many = self.jobs(900)
        try:
            await store.submit(many)
        except Died:
            pass
        else:
            self.ids += [job.id for job in many]
        finally:
            for task in list(submitter._afterwards.tasks):
                await task
            scripts._run = run

    async def claim(self) -> None:
        self.held += await claim(self.store, queues=list(QUEUES), limit=self.random.choice((1, 5, 50)))

    async def park(self) -> None:
        self.requests += 1
        request = ClaimRequest(f"p{self.requests}", list(QUEUES), 2, "boot:1", park_ms=5_000, inbox="nobody")
        await self.store.attempts.claim(request)

    async def end(self) -> None:
        for got in self._some():
            outcome = self.random.choice((Outcome(None, exit_code=0), Outcome(Reason.EXIT_CODE, exit_code=1)))
            await self.store.attempts.finish([Result(got.id, got.fence, outcome)], worker="w1")

    async def release(self) -> None:
        await self.store.attempts.release([(got.id, got.fence) for got in self._some()])

    def _some(self) -> list[Claim]:
        some, self.held = self.held[::2], self.held[1::2]
        return some

    async def cancel(self) -> None:
        for one in self.random.sample(self.ids, min(len(self.ids), 10)):
            await self._steer(self.store.cancel, one)

    async def retry(self) -> None:
        for one in self.random.sample(self.ids, min(len(self.ids), 10)):
            await self._steer(self.store.retry, one)

    async def _steer(self, do: Callable[[str], Awaitable[object]], one: str) -> None:
        with suppress(Conflict, NotFound):
            await do(one)

    async def keep_house(self) -> None:
        maintenance = self.store.maintenance
        await getattr(maintenance, self.random.choice(("reap", "promote", "propagate", "tidy", "sweep", "measure")))()

    async def step(self) -> None:
        do = self.random.choice(
            [self.submit] * 5
            + [self.submit_large, self.submitter_dies, self.claim, self.claim, self.park, self.end, self.release]
            + [self.cancel, self.retry, self.keep_house, self.keep_house, self.keep_house]
        )
        self.did.append(do.__name__)
        with suppress(QueueFull, InvalidRequest):
            await do()


async def said(bench: Bench) -> tuple[int, dict[str, int]]:
    """What is said to wait, in all and in each queue with its reserved room."""
    rows = {queue: await bench.client.hgetall(bench.keys.queue(queue)) for queue in QUEUES}
    fields = (b"pending", b"scheduled", b"blocked", b"reserved")
    assert all(int(row.get(field, 0)) >= 0 for row in rows.values() for field in fields), rows
    waiting = {queue: sum(int(row.get(field, 0)) for field in fields) for queue, row in rows.items()}
    return int(await bench.client.hget(bench.keys.meta, "waiting") or 0), waiting


@pytest.mark.parametrize("seed", range(budget(2, 6)))
async def test_the_count_of_waiting_jobs_never_leaks_nor_goes_below_0(
    bench: Bench, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bench's audit counts all of it anew at the end."""
    monkeypatch.setattr("workron.store.submit.ABANDONED_MS", 0)
    chaos = Chaos(bench, seed)
    await chaos.stores[0].limit_all(Settings(max_pending=MOST, max_pending_total=MOST_IN_ALL))
    for _ in range(60):
        await chaos.step()
        total, waiting = await said(bench)
        assert total == sum(waiting.values()), chaos.did[-5:]
    while await chaos.stores[0].maintenance.tidy():
        pass
    assert not await bench.client.exists(bench.keys.batches)
    rows = [await bench.client.hget(bench.keys.queue(queue), "reserved") for queue in QUEUES]
    assert [int(row or 0) for row in rows] == [0, 0, 0]


async def test_jobs_that_vanished_with_their_queue_took_room_for_ever(bench: Bench) -> None:
    store = bench.store(POLICY)
    await store.limit_all(Settings(max_pending_total=2))
    gone, stays = await submit(store, new_job(queue="a"), new_job(queue="b"))
    await bench.client.delete(bench.keys.queue("a"), bench.keys.pending("a", 5), bench.keys.job(gone))
    await bench.client.zrem(bench.keys.jobs, gone)
    await refused(store, new_job())
    await store.maintenance.measure()
    await submit(store, new_job())
    await refused(store, new_job())
    assert await store.job(stays)


async def test_jobs_from_before_there_were_limits_did_not_count(bench: Bench) -> None:
    store = bench.store(POLICY)
    await submit(store, new_job(), new_job())
    await bench.client.hdel(bench.keys.meta, "waiting")
    await store.limit_all(Settings(max_pending_total=2))
    await store.maintenance.measure()
    await refused(store, new_job())


async def test_room_that_a_submission_has_reserved_is_not_forgotten_when_all_is_counted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = bench.store(POLICY), bench.store(POLICY)
    await store.limit_all(Settings(max_pending_total=1_000))
    opening = store.scripts.submission_open

    async def between(**args: Any) -> Any:
        await other.maintenance.measure()
        await refused(other, new_job())
        return await opening(**args)

    monkeypatch.setattr(store.scripts, "submission_open", between)
    await submit(store, *jobs(1_000))
