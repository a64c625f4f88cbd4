"""Arrays under random operations: the audit after each of these runs counts everything anew."""

import random
from contextlib import suppress

import pytest

from tests.array_jobs import BAD, array_job, array_of
from tests.budget import budget
from tests.builders import SUCCESS, claim, finish
from workron.errors import Conflict
from workron.models import Claim, Dependency, NewJob, Status, When
from workron.store import Store

QUEUES = ["default", "behind"]


class Life:
    """Some arrays, and what is done with them."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store = store
        self.random = random.Random(seed)  # noqa: S311 - to be the same again
        self.arrays: list[NewJob] = []
        self.running: list[Claim] = []

    async def submit(self) -> None:
        size = self.random.choice([1, 3, 8, 130])
        parallel = self.random.choice([None, 1, 2])
        followed = [job for job in self.arrays if job.array and job.array.size == size]
        edges = []
        if followed and self.random.random() < 0.7:
            edges = [Dependency(self.random.choice(followed).id, self.random.choice([*When]), matching=True)]
        job = array_job(size, max_parallel=parallel, depends_on=edges, queue=self.random.choice(QUEUES))
        await self.store.submit([job])
        self.arrays.append(job)

    async def claim(self) -> None:
        self.running += await claim(self.store, queues=QUEUES, limit=self.random.randint(1, 30))
        for job in self.arrays:
            array = await array_of(self.store, job)
            unfinished = sum(array.counts[status] for status in (Status.RUNNING, Status.PENDING, Status.SCHEDULED))
            assert array.max_parallel is None or unfinished <= array.max_parallel
            assert sum(array.counts.values()) + array.rest == array.size

    async def finish(self) -> None:
        self.random.shuffle(self.running)
        for _ in range(self.random.randint(1, 20)):
            if self.running:
                await finish(self.store, self.running.pop(), BAD if self.random.random() < 0.3 else SUCCESS)

    async def cancel(self) -> None:
        job = self.random.choice(self.arrays)
        with suppress(Conflict):
            if self.random.random() < 0.3:
                await self.store.cancel(job.id)
            else:
                await self.store.cancel_tasks(job.id, self.some_of(job))

    async def retry(self) -> None:
        job = self.random.choice(self.arrays)
        with suppress(Conflict):
            if self.random.random() < 0.5:
                await self.store.retry(job.id)
            else:
                await self.store.retry_tasks(job.id, self.some_of(job))

    async def tidy(self) -> None:
        await self.store.maintenance.tidy()
        await self.store.maintenance.propagate()

    def some_of(self, job: NewJob) -> list[int]:
        assert job.array is not None
        return sorted(self.random.sample(range(job.array.size), self.random.randint(1, min(5, job.array.size))))

    async def to_the_end(self) -> None:
        """Run what is left; everything ends then."""
        for _ in range(1000):
            await self.tidy()
            self.running += await claim(self.store, queues=QUEUES, limit=50)
            if not self.running:
                break
            while self.running:
                await finish(self.store, self.running.pop())
        for job in self.arrays:
            array = await array_of(self.store, job)
            assert sum(array.counts[status] for status in Status if status.terminal) == array.size
            assert (await self.store.job(job.id)).status.terminal


@pytest.mark.parametrize("seed", range(budget(3, 8)))
async def test_whatever_is_done_with_arrays_every_count_is_right_and_all_end(store: Store, seed: int) -> None:
    life = Life(store, seed)
    await life.submit()
    for _ in range(60):
        await life.random.choice([life.submit, *[life.claim, life.finish] * 3, life.cancel, life.retry, life.tidy])()
    await life.to_the_end()
