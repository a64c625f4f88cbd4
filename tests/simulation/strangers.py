"""Calls that have to be refused: each leaves all keys as they were."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any, Final, Protocol

import orjson

from tests.simulation.actors import new_jobs
from tests.simulation.history import History
from tests.simulation.http import ApiServer, Request
from tests.simulation.left_behind import Watch
from tests.simulation.work import WITH_VALUES
from workron import ids
from workron.errors import Conflict, InvalidRequest, NotFound, QueueFull, StoreUnavailable
from workron.models import (
    Beat,
    ClaimRequest,
    Idempotency,
    OnConflict,
    Outcome,
    OutputPatch,
    QueueChange,
    Result,
    Unique,
    Until,
    Verdict,
    When,
)
from workron.models.exchange import Kept
from workron.store import Store

REQUESTS: Final = 12
NARROW: Final = "narrow"
"""A queue with room for one job, which has it, and is paused."""
ELSEWHERE: Final = "elsewhere"
"""A queue that only strangers name."""
_OUTAGE_S: Final = 12.0
"""Longer than any: what an outage has held up has arrived by then."""
_OLD: Final = 1
"""A fence from long ago."""
_UNKNOWN: Final = "unknown"
_KEY: Final = Idempotency("default", "stranger", "first")
_HELD: Final = Unique("held", Until.FINISHED, OnConflict.REJECT, 24 * 3600 * 1000)
_ARRAY: Final = {"command": "work 50 0", "queue": ELSEWHERE, "parents": [], "array": (WITH_VALUES, None)}
_PLAIN: Final = {"command": "work 50 0", "queue": ELSEWHERE, "parents": []}

Plan = dict[str, Any]


class World(Protocol):
    """What a stranger needs of the world."""

    errors: list[str]
    history: History
    known: list[str]


class Accepted(Exception):
    """Something was done that should have been refused."""


class Stranger:
    """Makes such calls one after the other, on a connection of its own."""

    def __init__(self, world: World, store: Store, api: ApiServer, watch: Watch, random: Random) -> None:
        self._world = world
        self._store = store
        self._api = api
        self._watch = watch
        self._random = random
        self._holder = ""

    async def run(self) -> None:
        await self._insist(lambda: self._store.change_queue(NARROW, QueueChange(max_pending=1, paused=True)))
        await self._insist(self._take_the_room)
        kinds = [self._report, self._write, self._release, self._begin, self._beat, self._claim, self._retry]
        kinds += [self._submit] * 4 + [self._request] * 2
        for _ in range(REQUESTS):
            await asyncio.sleep(self._random.uniform(0, 1.0))
            await self._judged(self._random.choice(kinds))
        await self._insist(lambda: self._store.cancel(self._holder))

    async def _insist(self, do: Callable[[], Awaitable[object]]) -> None:
        while True:
            try:
                await do()
            except StoreUnavailable:
                await asyncio.sleep(1.0)
            else:
                return

    async def _take_the_room(self) -> None:
        (job,) = new_jobs([_PLAIN | {"queue": NARROW, "unique": _HELD}])
        self._holder = (await self._store.submit([job], idempotency=_KEY)).ids[0]

    async def _judged(self, ask: Callable[[], Awaitable[str]]) -> None:
        """Make calls that are refused, and compare all keys. In an outage, first wait for all late calls to arrive."""
        self._watch.forget()
        try:
            what = await ask()
        except StoreUnavailable:
            await asyncio.sleep(_OUTAGE_S)
            return
        except Accepted as error:
            self._world.errors.append(f"this was not refused: {error}")
            return
        left = self._watch.added | (self._watch.changed if self._watch.calls == 1 else set())
        if left:
            self._world.errors.append(f"{what} was refused, and has left {sorted(left)}")

    async def _some_job(self) -> str:
        """Return a job that runs, if one does soon."""
        for _ in range(20):
            running = [job_id for job_id, job in self._world.history.told.jobs.items() if job.status == "running"]
            if running:
                return self._random.choice(running)
            await asyncio.sleep(0.05)
        return self._random.choice([*self._world.known[-10:], ids.new_id(), _UNKNOWN])

    # --- what a worker says of attempts that it does not have ---------------------------------------------------------

    async def _report(self) -> str:
        job_id = await self._some_job()
        outcome = self._random.choice([Outcome(None, exit_code=0), Outcome(None, exit_code=0, result="[1]")])
        output = self._random.choice([None, OutputPatch(0, b"x" * 100, 100)])
        exchanged = await self._store.attempts.finish([Result(job_id, _OLD, outcome, output)], worker="stranger")
        if exchanged.finished[0].verdict not in (Verdict.LEASE_LOST, Verdict.UNKNOWN):
            raise Accepted(f"a result of {job_id}: {exchanged.finished[0]}")
        self._watch.look_only_for("stranger", job_id)
        return f"a result of {job_id}"

    async def _write(self) -> str:
        job_id = await self._some_job()
        patch = OutputPatch(0, b"x" * 100, 100, self._random.choice([None, "0.5"]))
        if await self._store.attempts.write_output([(job_id, _OLD, patch)]) != [Kept.LOST]:
            raise Accepted(f"output of {job_id}")
        return f"output of {job_id}"

    async def _release(self) -> str:
        job_id = await self._some_job()
        if await self._store.attempts.release([(job_id, _OLD)]) != [None]:
            raise Accepted(f"the release of {job_id}")
        return f"the release of {job_id}"

    async def _begin(self) -> str:
        job_id = await self._some_job()
        if await self._store.attempts.begin(job_id, _OLD):
            raise Accepted(f"the beginning of {job_id}")
        return f"the beginning of {job_id}"

    async def _beat(self) -> str:
        job_id = await self._some_job()
        if await self._store.attempts.beat(job_id, _OLD) is not Beat.LOST:
            raise Accepted(f"a heartbeat of {job_id}")
        return f"a heartbeat of {job_id}"

    async def _claim(self) -> str:
        """Wait for a job where there is none, and give up."""
        asked = ClaimRequest("stranger", [_UNKNOWN], 1, ids.new_id(), park_ms=5000)
        await self._store.attempts.claim(asked)
        await self._store.attempts.claim(ClaimRequest("stranger", [_UNKNOWN], 0, asked.request_id))
        self._watch.look_only_for("stranger", _UNKNOWN)
        return "a claim"

    # --- what a client asks for ---------------------------------------------------------------------------------------

    async def _retry(self) -> str:
        job_id = self._random.choice([self._holder, ids.new_id()])
        await self._refused(lambda: self._store.retry(job_id), f"a retry of {job_id}")
        return f"a retry of {job_id}"

    async def _submit(self) -> str:
        """Submit something that is small, or goes in several calls, and can't be stored."""
        small: Sequence[tuple[str, list[Plan]]] = [
            ("an unknown dependency", [_ARRAY | {"parents": [(ids.new_id(), When.DONE)]}]),
            ("a queue that is full", [_ARRAY | {"queue": NARROW}]),
            ("a unique key that is held", [_PLAIN | {"unique": _HELD}]),
        ]
        why, plans = self._random.choice(small)
        if self._random.random() < 0.5:
            plans = [_ARRAY, *[_PLAIN] * 8, *plans]
        await self._refused(lambda: self._store.submit(new_jobs(plans)), f"a submission with {why}")
        other = Idempotency(_KEY.scope, _KEY.key, "second")
        await self._refused(lambda: self._store.submit(new_jobs(plans), idempotency=other), "a key that is used")
        return f"a submission of {len(plans)} jobs with {why}"

    async def _refused(self, ask: Callable[[], Awaitable[object]], what: str) -> None:
        try:
            await ask()
        except (Conflict, InvalidRequest, NotFound, QueueFull):
            return
        raise Accepted(what)

    async def _request(self) -> str:
        """Send a request that the API refuses."""
        job_id = await self._some_job()
        method, path, document = self._random.choice(
            [
                ("POST", "/jobs", {"command": 5}),
                ("POST", "/jobs", {"command": "work 50 0", "depends_on": [job_id, job_id]}),
                ("POST", "/jobs/bulk", {"jobs": [{"command": "work 50 0"}, {}]}),
                ("POST", "/claims", {"worker_id": "a b", "queues": ["default"]}),
                ("POST", "/outputs", {"data": [{"id": job_id, "fence": _OLD, "output": {"offset": -1}}]}),
                ("POST", "/exchange", {"worker_id": "stranger", "results": [{"id": job_id}]}),
                ("PATCH", f"/queues/{_UNKNOWN}", {"max_pending": -1}),
                ("DELETE", f"/jobs/{_UNKNOWN}", {}),
                ("POST", f"/jobs/{_UNKNOWN}/cancel", {}),
            ]
        )
        answer = await self._api.serve(Request(method, path, b"", orjson.dumps(document)), asyncio.Event())
        if answer.status_code == 503:
            raise StoreUnavailable(answer.text)
        if answer.status_code < 400:
            raise Accepted(f"{method} {path} {document}: {answer.text}")
        return f"{method} {path} {document}"
