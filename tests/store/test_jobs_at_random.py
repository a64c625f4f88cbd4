"""All that jobs can say, under random operations: the audit counts everything anew, and in the end all have ended."""

import random
from collections.abc import Sequence
from contextlib import suppress

import pytest

from tests.array_jobs import BAD
from tests.budget import budget
from tests.builders import SUCCESS, claim, finish, new_job
from tests.bulk_actions import order
from tests.consistency import Audit
from tests.servers import Bench
from workron import ids
from workron.errors import Conflict, InvalidRequest, NotFound, UnknownDependency
from workron.models import (
    Claim,
    Concurrency,
    Dependency,
    Moment,
    NewArray,
    NewJob,
    OnConflict,
    OnFailure,
    QueueChange,
    Status,
    Unique,
    Until,
    When,
)
from workron.models.actions import ACTS_ON, Verb
from workron.models.retry import RetryPolicy

QUEUES = ["default", "other"]
REFUSED = (Conflict, NotFound, InvalidRequest, UnknownDependency)


class World:
    """Jobs and workflows of every kind, and what is done with them."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench = bench
        self.store = bench.store()
        self.random = random.Random(seed)  # noqa: S311 - to be the same again
        self.ids: list[str] = []
        self.workflows: list[str] = []
        self.running: list[Claim] = []

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def job(self, parents: Sequence[str], job_id: str | None = None) -> NewJob:
        edges = self.random.sample(parents, min(len(parents), self.random.choice([0, 0, 1, 2])))
        job = new_job(
            id=job_id,
            queue=self.random.choice(QUEUES),
            priority=self.random.choice([1, 5, 5, 9]),
            max_attempts=self.random.choice([1, 1, 2]),
            retry=RetryPolicy(delay_ms=0),
            depends_on=[Dependency(parent, self.random.choice([*When])) for parent in edges],
        )
        if self.chance(0.2):
            job.unique = Unique(
                self.random.choice("ab"), self.random.choice([*Until]), self.random.choice([*OnConflict]), 60_000
            )
        if self.chance(0.2):
            job.concurrency = Concurrency(self.random.choice("xy"), self.random.choice([1, 2]))
        if self.chance(0.15):
            job.expires = Moment(after_ms=self.random.choice([1, 60_000]))
        if self.chance(0.15):
            job.deadline = Moment(after_ms=self.random.choice([1, 60_000]))
        if self.chance(0.1):
            job.run_at_ms = 1
        if self.chance(0.15) and (job.unique is None or job.unique.until is Until.FINISHED):
            size = self.random.choice([1, 3, 5])
            job.array = NewArray(ids.new_ids(size)[0], size, None, self.random.choice([None, 1, 2]))
        return job

    async def submit(self) -> None:
        with suppress(*REFUSED):
            self.ids += (await self.store.submit([self.job(self.ids[-8:])])).ids

    async def submit_workflow(self) -> None:
        members: list[NewJob] = []
        for job_id in ids.new_ids(self.random.randint(2, 5)):
            members.append(self.job([job.id for job in members], job_id))
        if self.chance(0.5):
            members[-1].final, members[-1].depends_on, members[-1].array = True, [], None
        with suppress(*REFUSED):
            submitted = await self.store.submit(members, as_workflow=True, on_failure=self.random.choice([*OnFailure]))
            self.ids += submitted.ids
            self.workflows += [submitted.workflow or ""]

    async def add(self) -> None:
        if self.workflows:
            workflow = self.random.choice(self.workflows)
            with suppress(*REFUSED):
                members = [job.id for job in await self.store.workflow_jobs(workflow)]
                final = [job.id for job in await self.store.workflow_jobs(workflow) if job.final]
                more = self.job([job_id for job_id in members if job_id not in final])
                self.ids += (await self.store.add(workflow, [more])).ids

    async def claim(self) -> None:
        self.running += await claim(self.store, queues=QUEUES, limit=self.random.randint(1, 5))

    async def finish(self) -> None:
        self.random.shuffle(self.running)
        for _ in range(self.random.randint(1, 5)):
            if self.running:
                await finish(self.store, self.running.pop(), BAD if self.chance(0.4) else SUCCESS)

    async def release(self) -> None:
        if self.running:
            claimed = self.running.pop()
            await self.store.attempts.release([(claimed.id, claimed.fence)])

    async def cancel(self) -> None:
        if self.ids:
            with suppress(*REFUSED):
                await self.store.cancel(self.random.choice(self.ids), cascade=self.chance(0.5))

    async def cancel_workflow(self) -> None:
        if self.workflows:
            with suppress(*REFUSED):
                await self.store.cancel_workflow(self.random.choice(self.workflows))

    async def retry(self) -> None:
        for job_id in self.random.sample(self.ids, min(3, len(self.ids))):
            with suppress(*REFUSED):
                await self.store.retry(job_id)

    async def delete(self) -> None:
        if self.ids:
            with suppress(*REFUSED):
                await self.store.delete(self.random.choice(self.ids))

    async def act(self) -> None:
        verb = self.random.choice([*Verb])
        status = self.random.choice([None, *ACTS_ON[verb]])
        where = {"status": status and Status(status), "queue": self.random.choice([None, *QUEUES])}
        to = (self.random.choice(QUEUES), self.random.choice([None, 3])) if verb is Verb.MOVE else (None, None)
        await order(self.store, verb, to=to, **where)

    async def gate(self) -> None:
        change = QueueChange(paused=self.chance(0.3), max_running=self.random.choice([1, 3, 50]))
        await self.store.change_queue(self.random.choice(QUEUES), change)

    async def purge(self) -> None:
        await self.store.purge_queue(self.random.choice(QUEUES))

    async def tidy(self) -> None:
        await self.store.maintenance.promote()
        await self.store.maintenance.tidy()
        await self.store.maintenance.propagate()
        await self.store.actions.step("r")

    async def audit(self) -> None:
        while await self.bench.client.zcard(self.bench.keys.arrays):  # an array that is gone over ends behind it
            await self.store.maintenance.tidy()
        assert await Audit(self.bench.client, self.bench.keys).problems() == []

    async def to_the_end(self) -> None:
        """Run what is left; everything ends then."""
        for queue in QUEUES:
            await self.store.change_queue(queue, QueueChange(paused=False, max_running=50))
        for _ in range(1000):
            await self.tidy()
            self.running += await claim(self.store, queues=QUEUES, limit=50)
            if not self.running and not await self.store.actions.step("r"):
                break
            while self.running:
                await finish(self.store, self.running.pop())
        await self.audit()
        for job in await self.store.jobs(self.ids):
            assert job is None or job.status.terminal, (job.id, job.status)


@pytest.mark.parametrize("seed", range(budget(2, 6)))
async def test_whatever_is_done_every_count_is_right_and_all_end(bench: Bench, seed: int) -> None:
    world = World(bench, seed)
    often = [world.submit, world.submit_workflow, world.claim, world.claim, world.finish, world.finish, world.retry]
    seldom = [world.add, world.release, world.cancel, world.cancel_workflow, world.delete, world.act, world.gate]
    for step in range(120):
        await world.random.choice([*often * 3, *seldom * 2, world.purge, world.tidy, world.tidy])()
        if step % 20 == 0:
            await world.audit()
    await world.to_the_end()
