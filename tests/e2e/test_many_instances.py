"""Three API servers, four workers of each kind, two reapers on one Redis, some killed all the time: jobs run once."""

import asyncio
import itertools
import subprocess
from collections import Counter
from pathlib import Path

import httpx2
import pytest

from tests.budget import budget
from tests.conftest import WaitUntil
from tests.ports import free_port
from tests.servers import Bench
from workron.models import Status
from workron.store import Store

pytestmark = [pytest.mark.chaos]

JOBS = budget(1_500, 5_000)
BULK = budget(15, 50)
"""Jobs in every second request; the others bring one."""
PAUSE_S = 0.1
"""Between two requests of a submitter: so that they go on while servers are killed."""
WITHIN_S = 60
KILLS = 4
KEY = "a-key-for-tests-only"
WORKERS = {"redis": 4, "http": 4}
"""How many workers of each kind."""


class Instances:
    """The processes, each of which may be killed and replaced. API servers keep their ports."""

    def __init__(self, processes, folder: Path) -> None:
        self._processes = processes
        self._folder = folder
        self.ports = [free_port() for _ in range(3)]
        self.apis = [self._api(port) for port in self.ports]
        self.reapers = [processes.reaper() for _ in range(2)]

    def start_workers(self) -> None:
        for kind, number in WORKERS.items():
            for at in range(number):
                self._worker(kind, at)

    def _api(self, port: int) -> "subprocess.Popen[bytes]":
        return self._processes.start("api", "--port", str(port), "--data-dir", str(self._folder))

    def _worker(self, kind: str, at: int) -> None:
        api = ["--api", f"http://127.0.0.1:{self.ports[at % 3]}"] if kind == "http" else []
        self._processes.start("worker", "--slots", "4", *api)

    def replace_api(self, at: int) -> None:
        self.apis[at].kill()
        self.apis[at].wait()
        self.apis[at] = self._api(self.ports[at])

    def replace_reaper(self, at: int) -> None:
        self.reapers[at].kill()
        self.reapers[at].wait()
        self.reapers[at] = self._processes.reaper()


class Submitter:
    """Submits its share through one API server, each request until it is answered, and keeps the ids."""

    def __init__(self, port: int, number: int, ran: Path) -> None:
        self.ids: list[str] = []
        self.repeats = 0
        self._number = number
        self._job = {"command": f"echo $WORKRON_JOB_ID $WORKRON_FENCE >> {ran}"}
        self._http = httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", headers={"authorization": f"Bearer {KEY}"}, timeout=10, trust_env=False
        )

    async def run(self) -> None:
        async with self._http:
            for size in itertools.cycle((1, BULK)):
                size = min(size, self._number)
                if not size:
                    return
                path, body = ("/jobs", self._job) if size == 1 else ("/jobs/bulk", {"jobs": [self._job] * size})
                document = await self._post(path, body, key=f"{id(self)}-{self._number}")
                self.ids += [job["id"] for job in document.get("data", [document])]
                self._number -= size
                await asyncio.sleep(PAUSE_S)

    async def _post(self, path: str, body: object, key: str):
        """Send a request again, as the same one, while the server is away."""
        while True:
            try:
                answer = await self._http.post(path, json=body, headers={"idempotency-key": key})
            except httpx2.TransportError:
                self.repeats += 1
                await asyncio.sleep(0.05)
                continue
            if answer.status_code in {200, 201}:  # 200: it was stored, only its answer was lost
                return answer.json()
            assert answer.status_code == 503, answer.text


@pytest.fixture
def instances(processes, tmp_path: Path) -> Instances:
    processes.set(WORKRON_API_KEY=KEY, WORKRON_LEASE="10s", WORKRON_LOG_LEVEL="warning")
    return Instances(processes, tmp_path)


async def test_thousands_of_jobs_run_once_each_while_api_servers_and_reapers_are_killed(
    instances: Instances, bench: Bench, wait_until: WaitUntil, tmp_path: Path
) -> None:
    store = bench.store()
    ran = tmp_path / "ran"
    ran.touch()
    started_at = asyncio.get_running_loop().time()
    shares = [JOBS // 3, JOBS // 3, JOBS - 2 * (JOBS // 3)]
    submitters = [Submitter(port, share, ran) for port, share in zip(instances.ports, shares, strict=True)]
    await wait_until(lambda: all(map(answers, instances.ports)))
    instances.start_workers()
    await wait_until(lambda: all_workers_are_there(store))
    submitting = asyncio.gather(*(submitter.run() for submitter in submitters))
    for kill in range(KILLS):
        mark = JOBS * (kill + 1) // (KILLS + 2)
        await wait_until(lambda mark=mark: sum(len(one.ids) for one in submitters) >= mark, within_s=WITHIN_S)
        instances.replace_api(kill % 3)
        instances.replace_reaper(kill % 2)
    assert not submitting.done()
    await submitting
    assert all(submitter.repeats for submitter in submitters), "each server was killed under a submitter"
    ids = [job_id for submitter in submitters for job_id in submitter.ids]
    assert (len(ids), len(set(ids))) == (JOBS, JOBS)
    await wait_until(lambda: all_done(store), within_s=WITHIN_S)
    assert asyncio.get_running_loop().time() - started_at < WITHIN_S

    attempts = [line.split() for line in ran.read_text().splitlines()]
    assert Counter(job_id for job_id, _ in attempts) == Counter(ids), "how often each job's command ran"
    assert len({fence for _, fence in attempts}) == JOBS
    jobs = await store.jobs(ids)
    assert Counter((job.status, job.attempts) for job in jobs if job) == {(Status.DONE, 1): JOBS}
    assert len({job.worker for job in jobs if job}) == sum(WORKERS.values()), "workers that had a share"
    health = await store.health()
    assert health.running == 0


def answers(port: int) -> bool:
    try:
        return httpx2.get(f"http://127.0.0.1:{port}/livez", trust_env=False).is_success
    except httpx2.TransportError:
        return False


async def all_workers_are_there(store: Store) -> bool:
    return len((await store.workers()).workers) == sum(WORKERS.values())


async def all_done(store: Store) -> bool:
    counts = [queue.counts for queue in await store.queues()]
    return sum(count[Status.DONE] for count in counts) == JOBS
