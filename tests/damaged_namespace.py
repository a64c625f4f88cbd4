"""A namespace with something of everything, and short ways to break it."""

from tests.array_jobs import array_job
from tests.builders import after, claim, finish, new_job, submit
from tests.schedules import put
from tests.servers import QUICK, Bench
from workron.models import Concurrency, Moment, NewJob, Outcome, Reason, Unique
from workron.store import Store

LONG_MS = 3_600_000
BAD = Outcome(Reason.EXIT_CODE, exit_code=1)


class Patient:
    """Jobs in every state. `break_*` and `redis` are the ways to damage it."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.keys = bench.keys
        self.redis = bench.client
        self.store: Store = bench.store()

    async def build(self) -> "Patient":
        store = self.store
        timer = Moment(after_ms=LONG_MS)
        self.running, self.done, self.failed, self.slot = await submit(
            store, new_job(), new_job(), new_job(max_attempts=1), new_job(concurrency=Concurrency("k", 1))
        )
        _, done, failed, _ = await claim(store, limit=4)
        await finish(store, done)
        await finish(store, failed, BAD)
        self.pending, self.later, self.timed, self.child, self.first_held, self.unique = await submit(
            store,
            new_job(),
            new_job(run_at_ms=2**42),
            new_job(deadline=timer, expires=timer),
            new_job(depends_on=after(self.running)),
            new_job(concurrency=Concurrency("k", 1)),
            new_job(unique=Unique("u", ttl_ms=LONG_MS)),
        )
        workflow = [new_job(), new_job()]
        workflow[1].final = True
        self.workflow = (await store.submit(workflow, as_workflow=True)).workflow or ""
        self.final = workflow[1].id
        self.array: NewJob = array_job(3)
        await store.submit([self.array])
        await put(store)
        return self

    def key(self, name: str) -> str:
        return self.keys.prefix + name

    async def faults(self, *, rebuild: bool = False) -> dict[str, str]:
        """Examine; returns what is wrong: the code, and what it is about."""
        report = await self.store.doctor.examine(rebuild=rebuild)
        return {fault.code: fault.about for fault in report.faults}

    async def run_to_the_end(self) -> None:
        """Run all that can be, until nothing is left."""
        store = self.bench.store(QUICK)
        await self.redis.zadd(self.keys.due, {self.later: 1})
        await self.redis.zadd(self.keys.leases, {self.running: 1, self.slot: 1}, xx=True)
        await self.redis.delete(self.keys.heartbeat(self.running), self.keys.heartbeat(self.slot))
        for _ in range(200):
            await store.maintenance.reap()
            await store.maintenance.promote()
            await store.maintenance.tidy()
            for one in await claim(store, limit=20):
                await finish(store, one)
            queue = await store.queue("default")
            if not any(queue.counts[status] for status in ("pending", "running", "scheduled", "blocked")):
                return
        raise AssertionError(f"jobs never end: {queue.counts}")
