"""The example worker in plain shell and curl runs jobs, keeps them alive, obeys cancels and gives back on TERM."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx2
import pytest

from tests.api.live import AUTHORIZATION, KEY, START, environment
from tests.builders import claim, new_job, submit
from tests.conftest import WaitUntil
from tests.local_stack import ROOT
from tests.servers import Bench
from workron.models import Status
from workron.store import Store
from workron.store.policy import Policy

pytestmark = pytest.mark.chaos
WORKER = ROOT / "examples" / "worker.sh"
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
async def bench(valkey_url: str, namespace: str) -> AsyncIterator[Bench]:
    bench = Bench("valkey", valkey_url, namespace)
    yield bench
    await bench.aclose()


@pytest.fixture
def store(bench: Bench) -> Store:
    return bench.store(Policy(pass_ms=100))


@pytest.fixture
async def start(
    valkey_url: str, namespace: str, tmp_path: Path, wait_until: WaitUntil, store: Store
) -> AsyncIterator[Start]:
    """Starts shell workers on an API process."""
    port, env = environment(valkey_url, namespace, tmp_path)
    env |= {"WORKRON_RETRY_DELAY": "0.05"}
    command = [sys.executable, "-c", START]
    api = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL, cwd=tmp_path)  # noqa: ASYNC220
    workers: list[subprocess.Popen[bytes]] = []

    async def ready() -> bool:
        try:
            async with httpx2.AsyncClient(headers=AUTHORIZATION) as client:
                return (await client.get(f"http://127.0.0.1:{port}/readyz")).status_code == 200
        except httpx2.TransportError:
            return False

    await wait_until(ready, within_s=60)

    def start_worker(**variables: str) -> "subprocess.Popen[bytes]":
        own = {"WORKRON_URL": f"http://127.0.0.1:{port}", "WORKRON_API_KEY": KEY, "HEARTBEAT": "0.2"}
        environ = {**os.environ, **own, "TMPDIR": str(tmp_path), **variables}
        workers.append(subprocess.Popen([str(WORKER)], env=environ, start_new_session=True))
        return workers[-1]

    yield start_worker
    for worker in workers:
        if worker.poll() is None:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
    api.terminate()
    assert api.wait(30) == 0


async def test_it_is_as_short_as_promised() -> None:
    assert len(WORKER.read_text().splitlines()) <= 40


async def test_it_runs_jobs_and_reports_how_they_ended(store: Store, start: Start, wait_until: WaitUntil) -> None:
    tricky = "echo \"it's \\\\ a 'quote'\";\n\tprintf '%s\\n' \"tab\ttab\" ä '\\n'; echo $WORKRON_JOB_ID"
    good, tricked, bad, no_shell = await submit(
        store,
        new_job(command="echo hello"),
        new_job(command=tricky, env={"command": "no", "id": "no", "fence": "7"}),
        new_job(command="echo oh no; exit 3", max_attempts=1),
        new_job(argv=("true",), max_attempts=1),
    )
    worker = start(JOBS="4")
    await wait_until(lambda: worker.poll() == 0, within_s=60)
    jobs = {one: await store.job(one) for one in (good, tricked, bad, no_shell)}
    assert [jobs[one].status for one in (good, tricked)] == [Status.DONE] * 2
    assert (await store.output(good)).head == b"hello\n"
    assert (await store.output(tricked)).head.decode() == f"it's \\ a 'quote'\ntab\ttab\nä\n\\n\n{tricked}\n"
    assert (jobs[bad].status, jobs[bad].exit_code) == (Status.FAILED, 3)
    assert (jobs[no_shell].status, jobs[no_shell].exit_code) == (Status.FAILED, 126)


async def test_it_stops_a_job_that_is_cancelled(store: Store, start: Start, wait_until: WaitUntil) -> None:
    (job_id,) = await submit(store, new_job(command="sleep 100"))
    worker = start(JOBS="1")

    async def is_(status: Status) -> bool:
        return (await store.job(job_id)).status is status

    await wait_until(lambda: is_(Status.RUNNING))
    await store.cancel(job_id)
    await wait_until(lambda: is_(Status.CANCELLED))
    await wait_until(lambda: worker.poll() == 0)


async def test_it_kills_a_command_whose_job_it_has_lost(
    bench: Bench, store: Store, start: Start, wait_until: WaitUntil, tmp_path: Path
) -> None:
    alive = tmp_path / "alive"
    (job_id,) = await submit(store, new_job(command=f"while :; do touch {alive}; sleep 0.05; done"))
    worker = start(JOBS="1")
    await wait_until(alive.exists)
    fence = await bench.client.hget(bench.keys.job(job_id), "fence")
    await store.attempts.release([(job_id, int(fence))])
    (other,) = await claim(store, worker="other")
    assert other.id == job_id
    await wait_until(lambda: worker.poll() == 0)
    alive.unlink()
    await asyncio.sleep(0.3)
    assert not alive.exists()
    assert (await store.job(job_id)).status is Status.RUNNING


async def test_it_gives_its_job_back_when_it_is_stopped(store: Store, start: Start, wait_until: WaitUntil) -> None:
    (job_id,) = await submit(store, new_job(command="sleep 100"))
    worker = start()

    async def is_(status: Status) -> bool:
        return (await store.job(job_id)).status is status

    await wait_until(lambda: is_(Status.RUNNING))
    worker.terminate()
    await wait_until(lambda: is_(Status.PENDING))
    assert (await store.job(job_id)).attempts == 0
    await wait_until(lambda: worker.poll() == 0)


def scripts_of(worker: "subprocess.Popen[bytes]") -> list[str]:
    """What is left of the script in the session that it was started in: itself, and its heartbeats."""
    left = subprocess.run(["ps", "-o", "args=", "-s", str(worker.pid)], capture_output=True, text=True, check=False)
    return [line for line in left.stdout.splitlines() if "worker.sh" in line]


async def test_heartbeats_went_on_without_the_worker(store: Store, start: Start, wait_until: WaitUntil) -> None:
    (job_id,) = await submit(store, new_job(command="sleep 100"))
    worker = start()

    async def has_beaten() -> bool:
        job = await store.job(job_id)
        return (job.last_heartbeat_at_ms or 0) > (job.started_at_ms or 0)

    await wait_until(has_beaten)
    worker.kill()
    await wait_until(lambda: worker.poll() is not None)
    await wait_until(lambda: scripts_of(worker) == [])
