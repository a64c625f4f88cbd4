"""`kill -9` of the API at every call that it makes to Redis while it stores 10,000 jobs: all of them exist, or none.

To die with the reply to a call lost leaves the same in Redis as to die before the next call: a death before each call,
and one after the last, are all that there are. A soak tries them all, an everyday run the ends of each kind.
"""

import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest
from redis.asyncio import Redis

from tests.budget import budget
from tests.builders import SUCCESS
from tests.e2e.mortal_api import NEVER, MortalApi
from tests.servers import QUICK, start_server
from workron.local.valkey import server_binary
from workron.models import ClaimRequest, JobFilter, Result, Status
from workron.redis.connection import Connection, build_client
from workron.redis.keys import Keys
from workron.store import Store, submit

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

KEY = "a-key-for-tests-only"
SIZE = 10_000
CALLS = ["submission_stage"] * 25 + ["submission_open"] + ["submission_admit"] * 26
OPEN = CALLS.index("submission_open")
SOME = [0, 1, 12, OPEN - 1, OPEN, OPEN + 1, OPEN + 13, len(CALLS) - 1]
"""The first and last calls of each kind, and some between: all are alike but for what they leave."""
DEATHS = [("before", number) for number in budget(SOME, [*range(len(CALLS))])] + [("after", len(CALLS) - 1)]
KEYS = Keys("default")


@dataclass(frozen=True)
class Submission:
    """A request that stores `SIZE` jobs, and how many of them wait for others."""

    path: str
    body: bytes
    blocked: int


def bulk() -> Submission:
    return Submission("/jobs/bulk", orjson.dumps({"jobs": [{"command": f"echo {n}"} for n in range(SIZE)]}), 0)


def workflow() -> Submission:
    """Every fourth job waits: for the one before it, or for the very first one."""
    jobs: list[dict[str, Any]] = [{"name": f"job-{n}", "command": f"echo {n}"} for n in range(SIZE)]
    for number in range(3, SIZE, 4):
        jobs[number]["depends_on"] = ["job-0" if number % 8 == 3 else f"job-{number - 1}"]
    return Submission("/workflows", orjson.dumps({"name": "large", "jobs": jobs}), SIZE // 4)


SUBMISSIONS = pytest.mark.parametrize("what", [bulk(), workflow()], ids=lambda what: what.path.strip("/"))


class Bench:
    """A server, the store on it, and an API that may die of what it is asked to store."""

    def __init__(
        self, url: str, redis: Redis, store: Store, api: MortalApi, http: httpx2.AsyncClient, home: Path
    ) -> None:
        self.redis = redis
        self.store = store
        self._api = api
        self._http = http
        self._settings = {"redis": url, "api_key": KEY, "data_dir": str(home), "port": 0, "audit_entries": 0}

    async def submit(self, what: Submission, *, key: str = "") -> tuple[int, list[str]]:
        """Store it; returns the status of the answer and the calls that the API made for it."""
        port = self._api.start(NEVER, **self._settings)
        try:
            status = (await self._post(port, what, key)).status_code
        finally:
            self._api.stop()
        return status, self._api.life().calls

    async def submit_in_vain(self, what: Submission, dies: tuple[str, int], *, key: str = "") -> None:
        """Submit it to an API that dies so."""
        port = self._api.start(dies, **self._settings)
        with pytest.raises((httpx2.NetworkError, httpx2.RemoteProtocolError)):
            await self._post(port, what, key)
        life = self._api.life()
        assert (life.code, life.calls) == (-signal.SIGKILL, CALLS[: dies[1] + 1])

    async def _post(self, port: int, what: Submission, key: str) -> httpx2.Response:
        headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
        if key:
            headers["idempotency-key"] = key
        return await self._http.post(f"http://127.0.0.1:{port}{what.path}", content=what.body, headers=headers)

    async def stored(self) -> list[str]:
        """Return the ids of all jobs of which anything is stored, in order."""
        prefix = KEYS.job("")
        return sorted({name.removeprefix(prefix).partition(":")[0] for name in await self.keys(f"{prefix}*")})

    async def left(self) -> set[str]:
        """Return the names of keys that stay for good, without the prefix."""
        names = await self.keys("*")
        return {name.removeprefix(KEYS.prefix) for name in names if await self.redis.ttl(name) == -1}

    async def keys(self, pattern: str) -> list[str]:
        found: list[Any] = await self.redis.keys(pattern)
        return [name.decode() for name in found]

    async def in_index(self, index: str) -> tuple[list[bytes], set[bytes], set[bytes | None]]:
        """Return the ids in a list or sorted set, and which statuses and batches these jobs have."""
        job = KEYS.job("*")
        found: Any = await self.redis.sort(index, by="nosort", get=["#", f"{job}->status", f"{job}->batch"])
        return found[::3], set(found[1::3]), set(found[2::3])


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(submit, "ABANDONED_MS", 0)
    server = start_server(server_binary(), tmp_path)
    url = f"unix://{tmp_path}/redis.sock"
    redis = build_client(url)
    with MortalApi(tmp_path / "api.log") as api:
        async with (
            Store(Connection.open(url, budget_s=20), policy=QUICK) as store,
            httpx2.AsyncClient(timeout=60, trust_env=False) as http,
        ):
            yield Bench(url, redis, store, api, http, tmp_path)
    await redis.aclose()
    server.terminate()
    server.wait(10)


@SUBMISSIONS
async def test_all_or_none_of_10_000_jobs_exist_after_a_death_at_any_call(bench: Bench, what: Submission) -> None:
    assert await bench.submit(what) == (201, CALLS)
    for dies in DEATHS:
        await bench.redis.flushdb(asynchronous=True)
        await bench.submit_in_vain(what, dies)
        opened = dies[0] == "after" or dies[1] > OPEN
        ids = await bench.stored()
        await assert_visible(bench, ids, visible=opened)
        await bench.store.maintenance.tidy()
        if opened:
            assert len(ids) == SIZE
            await assert_claimable(bench, what)
        else:
            assert await bench.left() <= {"meta"}, f"left after a death {dies}"


async def assert_visible(bench: Bench, ids: list[str], *, visible: bool) -> None:
    """Before anybody tidies, a reader sees every job or no job."""
    some = [*ids[:1], *ids[len(ids) // 2 :][:1], *ids[-1:]]
    assert [job is not None for job in await bench.store.jobs(some)] == [visible] * len(some)
    if not visible:
        assert not (await bench.store.list_jobs(JobFilter())).jobs
        assert await bench.store.queues() == []
        assert await bench.keys(KEYS.workflow("*")) == []


async def assert_claimable(bench: Bench, what: Submission) -> None:
    """Each job is once where a worker, or the end of its parent, finds it, and all counts say so."""
    pending, *states = await bench.in_index(KEYS.pending("default", 5))
    assert states == [{b"pending"}, {None}]
    blocked, *states = await bench.in_index(KEYS.index("default", Status.BLOCKED))
    assert not blocked or states == [{b"blocked"}, {None}]
    assert (len(pending), len(blocked)) == (SIZE - what.blocked, what.blocked)
    assert len({*pending, *blocked}) == SIZE
    (queue,) = await bench.store.queues()
    assert (queue.counts[Status.PENDING], queue.counts[Status.BLOCKED]) == (len(pending), len(blocked))
    assert await bench.redis.zcard(KEYS.jobs) == SIZE
    assert await bench.redis.zcard(KEYS.batches) == 0
    if what.path == "/workflows":
        (job,) = await bench.store.jobs([pending[0].decode()])
        assert job is not None
        assert job.workflow is not None
        found = await bench.store.workflow(job.workflow)
        assert (found.size, found.name, sum(found.counts.values())) == (SIZE, "large", SIZE)
        assert await bench.redis.llen(KEYS.workflow_jobs(job.workflow)) == SIZE


@SUBMISSIONS
@pytest.mark.parametrize("number", [OPEN + 13])
async def test_all_jobs_of_a_submission_whose_api_died_can_be_run(bench: Bench, what: Submission, number: int) -> None:
    await bench.submit_in_vain(what, ("before", number))
    await bench.store.maintenance.tidy()
    ran: set[str] = set()
    results: list[Result] = []
    for request in range(SIZE):
        claim = ClaimRequest("w1", ("default",), 150, f"boot:{request}")
        exchanged = await bench.store.attempts.finish(results, claim)
        if exchanged.propagating:
            await bench.store.maintenance.propagate()
        results = [Result(claim.id, claim.fence, SUCCESS) for claim in exchanged.claimed.claims]
        assert ran.isdisjoint(result.id for result in results)
        ran.update(result.id for result in results)
        if not results and not exchanged.propagating:
            break
    (queue,) = await bench.store.queues()
    assert (len(ran), queue.counts[Status.DONE]) == (SIZE, SIZE)


@SUBMISSIONS
@pytest.mark.parametrize("number", [12, OPEN, OPEN + 1, OPEN + 13])
async def test_the_client_of_a_dead_api_may_repeat_its_request(bench: Bench, what: Submission, number: int) -> None:
    """With an Idempotency-Key, before anybody has tidied up: the jobs exist once."""
    await bench.submit_in_vain(what, ("before", number), key="once")
    status, _ = await bench.submit(what, key="once")
    assert status == (201 if number <= OPEN else 200)
    await bench.store.maintenance.tidy()
    await assert_claimable(bench, what)
    assert len(await bench.stored()) == SIZE
