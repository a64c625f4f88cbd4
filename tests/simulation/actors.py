"""Who takes part: clients, workers, reapers. All but the clients are the product's own code."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final, Protocol, TypeVar

from redis.exceptions import ConnectionError as Away

from reaper.reaper import Reaper
from tests.simulation.fault_plan import Course
from tests.simulation.history import History
from tests.simulation.http import URL
from tests.simulation.rollback_observers import Witnesses
from tests.simulation.timeline import Process
from tests.simulation.work import LOUD, WITH_VALUES, Commands
from workers.http_source import HttpSource
from workers.source import JobSource
from workers.worker import Worker
from workron import ids
from workron.doctor import Fault
from workron.errors import Conflict, InvalidRequest, NotFound, StoreUnavailable
from workron.models import (
    NO_LIMIT,
    Concurrency,
    Dependency,
    Idempotency,
    Moment,
    NewArray,
    NewJob,
    OnConflict,
    OnFailure,
    QueueChange,
    Rate,
    Status,
    Unique,
    Until,
    When,
)
from workron.models.actions import ACTS_ON, ActionFilter, NewAction, Verb
from workron.models.retry import RetryPolicy
from workron.runtime.outage import outlast
from workron.schedules.models import CatchUp, Definition, Overlap
from workron.schedules.times import Dst
from workron.settings import Settings
from workron.store import Store
from workron.store.source import RedisSource

SCHEDULE: Final = "every-minute"
QUEUES: Final = ("default", "other")
PATIENCE_S: Final = 5.0
"""How long a client waits for an answer before it asks again, elsewhere."""
_TRIES: Final = 30
WIDTH: Final = 40
"""So many jobs wait for one in a wide submission."""
_KNOWN: Final = 10
"""A client deals with the last jobs only."""

T = TypeVar("T")
Plan = dict[str, Any]


class World(Protocol):
    """What actors need of the world around them."""

    history: History
    witnesses: Witnesses
    known: list[str]
    errors: list[str]

    def store(self, process: Process) -> Store: ...

    async def ask(self, client: Process, api: int, handle: Callable[[Store], Awaitable[T]]) -> T: ...


class WorkerProcess:
    """The real worker, straight at Redis or over HTTP; its commands are not real."""

    def __init__(self, world: World, process: Process, settings: Settings, *, over_http: bool) -> None:
        self.process = process
        self._world = world
        self._settings = settings
        self._over_http = over_http
        self.worker: Worker | None = None

    async def run(self) -> None:
        source: JobSource | None = RedisSource(self._world.store(self.process))
        if self._over_http:
            source = await outlast(asyncio.Event(), lambda: HttpSource.connect(URL, None))
        assert source is not None
        commands = Commands(self._world.history)
        self.worker = Worker(self._settings, source, commands)  # type: ignore[arg-type] # as much as it uses
        await self.worker.run()

    def leave(self) -> None:
        if self.worker is not None:
            self.worker.stop()


async def reaper(world: World, process: Process, every_s: float) -> None:
    """A reaper that mends what it should never find: no fault, and no rollback, leaves anything to be mended.

    But for what is due too late, as the server's clock was set back: it comes as soon as it is seen.
    """
    store = world.store(process)
    look = store.spot_check.look

    async def look_and_tell() -> list[Fault]:
        found = await look()
        worse = [fault for fault in found if not (world.set_back and fault.code == "not-due")]
        world.errors += [f"{process.name} found {fault.code} {fault.about}: {fault.detail}" for fault in worse]
        return found

    store.spot_check.look = look_and_tell  # type: ignore[method-assign]
    world.witnesses.enter(process, lambda: store.maintenance._passes)
    await Reaper(store, every_s=every_s).run(asyncio.Event())


@dataclass
class Client:
    """Submits, cancels and retries, and asks again until it is told what became of it."""

    world: World
    process: Process
    random: Random
    requests: int
    course: Course

    async def run(self) -> None:
        for number in range(self.requests):
            await asyncio.sleep(self.random.uniform(0, 2.5))
            often = [self._submit] * 10 + [self._cancel] * 3 + [self._retry] * 3
            act = self.random.choice([*often, self._order, self._gate, self._schedule])
            await act(f"{self.process.name}-{number}")

    async def put_right(self) -> None:
        """Open the queues and end the schedules, so that all can come to its end."""
        change = QueueChange(paused=False, max_running=NO_LIMIT, rate=NO_LIMIT)
        for queue in QUEUES:
            await self._insist(partial(_change, queue, change))
        await self._insist(lambda store: store.schedules.delete(SCHEDULE))

    async def _insist(self, handle: Callable[[Store], Awaitable[T]]) -> T | None:
        """Ask one API after the other; None if it is refused."""
        for _ in range(_TRIES):
            try:
                async with asyncio.timeout(PATIENCE_S):
                    return await self.world.ask(self.process, self.random.randrange(1000), handle)
            except (StoreUnavailable, Away, TimeoutError):
                await asyncio.sleep(self.random.uniform(0.1, 1.0))
            except (Conflict, InvalidRequest, NotFound):
                return None
        return None

    async def _submit(self, key: str) -> None:
        plans = self._plans()
        as_workflow = len(plans) > 1 and self._chance(0.5)
        on_failure = self.random.choice([*OnFailure])
        if as_workflow and self._chance(0.4):
            plans[-1] |= {"final": True, "parents": []}
            plans[-1].pop("array", None)
            plans[-1].pop("follows", None)
        idempotency = Idempotency("default", key, key)
        plans = [plan | {"name": key} for plan in plans]
        self.world.history.sizes[key] = len(plans)
        age = self.world.history.age

        async def handle(store: Store) -> tuple[str, ...]:
            jobs = new_jobs(plans)
            submitted = await store.submit(
                jobs, as_workflow=as_workflow, on_failure=on_failure, idempotency=idempotency
            )
            return submitted.ids

        stored = await self._insist(handle)
        if stored is not None:
            self.world.history.acknowledge(stored, age)
            self.world.known.extend(stored)

    async def _cancel(self, _: str) -> None:
        if not self.world.known:
            return
        job_id, cascade = self.random.choice(self.world.known[-_KNOWN:]), self._chance(0.3)

        async def handle(store: Store) -> None:
            await store.cancel(job_id, (await store.job(job_id)).run, cascade=cascade)

        await self._insist(handle)

    async def _retry(self, _: str) -> None:
        if not self.world.known:
            return
        job_ids = self.world.known[-_KNOWN:]

        async def handle(store: Store) -> None:
            for job in await store.jobs(job_ids):
                if job is not None and job.status in (Status.FAILED, Status.CANCELLED):
                    await store.retry(job.id, job.run)
                    return

        await self._insist(handle)

    async def _order(self, _: str) -> None:
        """Have something done with all jobs of a status."""
        verb = self.random.choice([Verb.CANCEL, Verb.RETRY, Verb.MOVE])
        where = ActionFilter(self.random.choice(ACTS_ON[verb]), self.random.choice(QUEUES))
        to = (self.random.choice(QUEUES), 3) if verb is Verb.MOVE else (None, None)
        action = NewAction(ids.new_id(), verb, where, *to)
        await self._insist(lambda store: store.actions.order(action))

    async def _gate(self, _: str) -> None:
        queue, most = self.random.choice(QUEUES), self.random.choice([1, 2])
        rate = Rate(2, 1000) if self._chance(0.3) else NO_LIMIT
        change = QueueChange(paused=self._chance(0.5), max_running=most, rate=rate)
        await self._insist(partial(_change, queue, change))

    async def _schedule(self, _: str) -> None:
        """Have something started with each minute: one comes in the storm, more where a clock jumps."""
        body: dict[str, Any] = {"command": "work 300 0"}
        as_workflow = self._chance(0.5)
        if as_workflow:
            body = {"name": "w", "jobs": [{"name": "a", **body}, {"name": "b", "depends_on": ["a"], **body}]}
        how = self.random.choice([*Overlap]), self.random.choice([*CatchUp])
        definition = Definition("* * * * *", "UTC", Dst.ONCE, *how, paused=False, work=body, is_workflow=as_workflow)
        await self._insist(lambda store: store.schedules.put(SCHEDULE, definition))

    # --- what is submitted --------------------------------------------------------------------------------------------

    def _plans(self) -> list[Plan]:
        """Describe the jobs of a submission; `parents` are places in it, or ids of jobs that are there."""
        shape = self.random.choice(["one", "one", "chain", "dag", "fan", "array", "follow"])
        if self.course is Course.OUTAGE and self._chance(0.1):
            return self._wide()
        size = {"one": 1, "chain": 4, "dag": self.random.randint(3, 8), "fan": self.random.randint(5, 9), "array": 1}
        size["follow"] = self.random.randint(2, 3)
        plans = [self._plan() for _ in range(size[shape])]
        for place, plan in enumerate(plans):
            if shape == "chain" and place:
                plan["parents"] = [(place - 1, self._when())]
            elif shape == "fan" and place:
                plan["parents"] = [(0, self._when())]
            elif shape == "dag" and place:
                parents = self.random.sample(range(place), min(place, self.random.choice([0, 1, 2])))
                plan["parents"] = [(parent, self._when()) for parent in parents]
        if shape == "array":
            plans[0] |= {
                "array": (self.random.choice([2, WITH_VALUES]), self.random.choice([None, 1, 2])),
                "unique": None,
            }
        elif shape == "follow":
            for place, plan in enumerate(plans):
                plan |= {"array": (3, self.random.choice([None, 1, 2])), "unique": None}
                plan["follows"] = (self.random.randrange(place), self._when()) if place else None
        elif self.world.known and self._chance(0.2):
            plans[0]["parents"] = [(self.random.choice(self.world.known[-_KNOWN:]), self._when())]
        return plans

    def _wide(self) -> list[Plan]:
        """Many jobs that one job skips, in many small steps."""
        job: Plan = {"command": "work 50 0", "queue": QUEUES[0], "parents": []}
        return [job, *(job | {"parents": [(0, When.FAILED)]} for _ in range(WIDTH))]

    def _plan(self) -> Plan:
        is_long = self.course is Course.OUTAGE or self._chance(0.5)
        length_ms = self.random.choice([50, 200, 800, 6000]) if is_long else 50
        plan: Plan = {
            "command": f"{self._word()} {length_ms} {self.random.choice([0, 0, 0, 1, 9])}",
            "queue": self.random.choice(QUEUES),
            "priority": self.random.choice([1, 5, 5, 9]),
            "max_attempts": self.random.choice([1, 2, 3, 3]),
            "retry": self.random.choice([None, RetryPolicy(delay_ms=0)]),
            "parents": [],
        }
        if self._chance(0.2):
            key, until, on_conflict = (
                self.random.choice("ab"),
                self.random.choice([*Until]),
                self.random.choice([*OnConflict]),
            )
            plan["unique"] = Unique(key, until, on_conflict, 600_000)
        if self._chance(0.2):
            plan["concurrency"] = Concurrency(self.random.choice("xy"), self.random.choice([1, 2]))
        if self._chance(0.1):
            plan["timeout_ms"] = self.random.choice([100, 2000])
        if self._chance(0.1):
            plan["delay_ms"] = self.random.choice([300, 3000])
        if self._chance(0.1):
            plan["deadline"] = Moment(after_ms=self.random.choice([100, 3000, 60_000]))
        if self._chance(0.1):
            plan["expires"] = Moment(after_ms=self.random.choice([100, 3000, 60_000]))
        return plan

    def _word(self) -> str:
        return LOUD if self.course is Course.OUTAGE and self._chance(0.25) else "work"

    def _when(self) -> When:
        return self.random.choice([When.DONE, When.DONE, When.FINISHED, When.FAILED])

    def _chance(self, share: float) -> bool:
        return self.random.random() < share


async def _change(queue: str, change: QueueChange, store: Store) -> None:
    await store.change_queue(queue, change)


def new_jobs(plans: list[Plan]) -> list[NewJob]:
    """Make jobs of the plans, with ids of their own, as an API server does with each request."""
    made = ids.new_ids(len(plans))
    jobs = []
    for job_id, plan in zip(made, plans, strict=True):
        fields = {name: value for name, value in plan.items() if name not in ("parents", "array", "follows")}
        edges = [Dependency(made[at] if isinstance(at, int) else at, when) for at, when in plan["parents"]]
        if plan.get("follows"):
            followed, when = plan["follows"]
            edges.append(Dependency(made[followed], when, matching=True))
        job = NewJob(id=job_id, depends_on=edges, **fields)
        if plan.get("array"):
            size, max_parallel = plan["array"]
            values = [f"value {place}" for place in range(size)] if size == WITH_VALUES else None
            job.array = NewArray(ids.new_id(), size, values, max_parallel)
        jobs.append(job)
    return jobs
