"""An outage longer than the lease: commands are killed by then, and none of their jobs loses an attempt by it."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.builders import new_job, submit
from tests.commands import LEASE_S, claim_for, let_end_unnoticed, start
from tests.conftest import WaitUntil
from tests.scripted_source import Scripted, Until, working
from tests.servers import Bench, start_server
from tests.workers.worker_sources import Place
from workers.executor import Executor
from workers.guardian import boottime_s
from workron.errors import StoreUnavailable
from workron.local.valkey import server_binary
from workron.models import Outcome, Reason, Status, WorkerInfo
from workron.models.workers import Beats
from workron.store.policy import Policy

SHORT = Policy(lease_ms=3_000, pass_ms=100, retry_ms=20)


class Away(Scripted):
    """Nobody answers while `away` is set."""

    def __init__(self) -> None:
        super().__init__(lease_ms=1_000)
        self.away = False
        self.failed = 0

    def _fail(self) -> None:
        if self.away:
            self.failed += 1
            raise StoreUnavailable("away")

    async def heartbeat(self, info: WorkerInfo, held: Sequence[tuple[str, int]]) -> Beats:
        self._fail()
        return await super().heartbeat(info, held)

    async def release(self, held: Sequence[tuple[str, int]]) -> None:
        self._fail()
        await super().release(held)


async def test_the_job_of_a_command_that_was_killed_in_an_outage_is_released_afterwards(
    wait_until: Until,
) -> None:
    source = Away()
    source.claims(claim_for("sleep 60", fence=7))
    async with working(source, heartbeat=0.1) as worker:
        await wait_until(lambda: worker.held)
        source.away = True
        await wait_until(lambda: worker.held[7].task.done())
        failed = source.failed
        await wait_until(lambda: source.failed > failed + 3)
        assert (source.released, list(worker.held)) == ([], [7])
        source.away = False
        await wait_until(lambda: source.released == [("job-7", 7)])
        await wait_until(lambda: not worker.held)
        assert [result for results in source.results for result in results] == []


async def test_what_is_lost_while_heartbeats_are_answered_counts_as_an_attempt(
    executor: Executor, wait_until: WaitUntil
) -> None:
    """Else a job that stops its whole host again and again would never fail."""
    attempt = start(executor, "sleep 60", fence=7)
    await wait_until(lambda: attempt.started)
    attempt.deadline = 0.0  # as after a suspend
    executor.renew([7], boottime_s() + LEASE_S)
    assert (await attempt.wait()).reason is Reason.WORKER_LOST
    assert not attempt.given_back


async def test_a_success_that_was_noticed_too_late_is_not_given_back(executor: Executor) -> None:
    executor.unanswered_since_s = 0.0
    attempt = start(executor, "true", fence=7)
    await let_end_unnoticed(attempt)
    attempt.lose()
    assert await attempt.wait() == Outcome(None, exit_code=0)
    assert not attempt.given_back


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Any]:
    """A server of its own, that a test may stop."""
    process = start_server(server_binary(), tmp_path)
    yield SimpleNamespace(url=f"unix://{tmp_path / 'redis.sock'}", process=process)
    process.send_signal(signal.SIGCONT)
    process.kill()
    process.wait(10)


@asynccontextmanager
async def reaping(place: Place) -> AsyncIterator[None]:
    async def run() -> None:
        store = place.bench.store(SHORT)
        while True:
            with suppress(StoreUnavailable):
                await store.maintenance.reap()
            await asyncio.sleep(0.1)

    task = asyncio.create_task(run())
    yield
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize("how", ["direct", "http"])
async def test_an_outage_longer_than_the_lease_took_an_attempt_of_every_job(
    redis: Any, namespace: str, tmp_path: Path, wait_until: WaitUntil, how: str
) -> None:
    bench = Bench("valkey", redis.url, namespace)
    place = Place(how, bench, tmp_path)
    async with place.worker(SHORT) as worker, reaping(place):
        once = f"[ -e {tmp_path}/begun ] && exit 0; touch {tmp_path}/begun; sleep 60"
        short = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done"
        jobs = await submit(place.store, *(new_job(command=one, max_attempts=1) for one in (once, short)))
        await wait_until(lambda: (tmp_path / "begun").exists() and len(worker.held) == 2)
        redis.process.send_signal(signal.SIGSTOP)
        (tmp_path / "go").touch()  # one succeeds meanwhile, and one is killed
        await wait_until(lambda: all(attempt.task.done() for attempt in worker.held.values()))
        await asyncio.sleep(SHORT.lease_ms / 1000)
        redis.process.send_signal(signal.SIGCONT)
        for job_id in jobs:
            await wait_until(place.is_(job_id, Status.DONE))
            job = await place.store.job(job_id)
            assert (job.attempts, job.reason) == (1, None)
    await bench.aclose()
