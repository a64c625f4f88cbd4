"""Jobs that may be what kills their workers run alone, and say so when they begin."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders import new_job, submit
from tests.commands import start
from tests.conftest import WaitUntil
from tests.pretend_worker import claim_for
from tests.scripted_source import Scripted, Until, working
from tests.workers.worker_sources import Place
from workers.attempt import Attempt
from workers.executor import Executor
from workron.errors import StoreUnavailable
from workron.models import Reason, Status

ALONE = {"alone": True}


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return tmp_path / "gate"


def until_open(gate: Path) -> str:
    """A command that ends when the gate is there."""
    return f"until [ -e {gate} ]; do sleep 0.01; done"


class Told:
    """Takes note of what begins, and answers as it is told to."""

    def __init__(self, executor: Executor, *answers: bool | Exception) -> None:
        self.begun: list[int] = []
        self._answers = list(answers)
        executor.suspects.begin = self._begin

    async def _begin(self, _job_id: str, fence: int) -> bool:
        self.begun.append(fence)
        answer = self._answers.pop(0) if self._answers else True
        if isinstance(answer, Exception):
            raise answer
        return answer


def started(*attempts: Attempt) -> Callable[[], bool]:
    return lambda: all(attempt.started for attempt in attempts)


async def some_looks() -> None:
    await asyncio.sleep(0.1)  # it looks every 20 ms whether it may start


async def test_a_poison_job_does_not_begin_while_another_command_runs(
    executor: Executor, gate: Path, wait_until: WaitUntil
) -> None:
    told = Told(executor)
    other = start(executor, until_open(gate), fence=1)
    await wait_until(started(other))
    suspect = start(executor, "true", fence=2, more=ALONE)
    await some_looks()
    assert (suspect.started, told.begun) == (False, [])
    gate.touch()
    assert (await suspect.wait()).reason is None
    assert told.begun == [2]


async def test_jobs_of_the_same_claim_ran_next_to_a_poison_job(
    executor: Executor, gate: Path, wait_until: WaitUntil
) -> None:
    suspect = start(executor, until_open(gate), fence=1, more=ALONE)
    other = start(executor, "true", fence=2)
    await wait_until(started(suspect))
    await some_looks()
    assert not other.started
    gate.touch()
    assert (await other.wait()).reason is None


async def test_poison_jobs_take_turns(executor: Executor, gate: Path, wait_until: WaitUntil) -> None:
    told = Told(executor)
    first, second = (start(executor, until_open(gate), fence=fence, more=ALONE) for fence in (1, 2))
    await wait_until(started(first))
    await some_looks()
    assert (second.started, told.begun) == (False, [1])
    gate.touch()
    await second.wait()
    assert told.begun == [1, 2]


async def test_a_poison_job_that_may_not_begin_is_not_started(executor: Executor, tmp_path: Path) -> None:
    Told(executor, False)
    suspect = start(executor, f"touch {tmp_path}/ran", more=ALONE)
    assert (await suspect.wait()).reason is Reason.WORKER_LOST
    assert not (tmp_path / "ran").exists()


async def test_a_poison_job_waits_until_its_start_is_recorded(executor: Executor) -> None:
    told = Told(executor, StoreUnavailable("away"), StoreUnavailable("away"))
    assert (await start(executor, "true", fence=5, more=ALONE).wait()).reason is None
    assert told.begun == [5, 5, 5]


async def test_a_poison_job_that_is_stopped_during_an_outage_is_not_started(
    executor: Executor, wait_until: WaitUntil
) -> None:
    told = Told(executor, *[StoreUnavailable("away")] * 100)
    suspect = start(executor, "true", more=ALONE)
    await wait_until(lambda: told.begun)
    suspect.stop()
    await suspect.wait()
    assert (suspect.given_back, suspect.started) == (True, False)


async def test_a_worker_asked_for_more_jobs_before_it_had_started_a_poison_job(gate: Path, wait_until: Until) -> None:
    source = Scripted()
    source.claims(claim_for(until_open(gate), fence=7, more=ALONE), more=True)
    async with working(source, slots=4) as worker:
        await wait_until(lambda: [attempt.started for attempt in worker.held.values()] == [True])
        assert len(source.requests) == 1
        gate.touch()
        await wait_until(lambda: any(source.results))


async def test_the_store_knows_whether_a_poison_job_has_begun(place: Place, gate: Path, wait_until: WaitUntil) -> None:
    client, store = place.bench.client, place.bench.store()
    other, suspect = await submit(store, new_job(command=until_open(gate)), new_job(command="sleep 0.3"))
    key = place.bench.keys.job(suspect)
    await client.hset(key, "losses", "2")

    async def waits() -> bool:
        return bool(await client.hexists(key, "waits"))

    async with place.worker():
        await wait_until(waits)
        assert await place.status(other) is Status.RUNNING
        gate.touch()
        await wait_until(place.is_(other, Status.DONE))

        async def runs() -> bool:
            return not await waits() and await place.status(suspect) is Status.RUNNING

        await wait_until(runs)
        await wait_until(place.is_(suspect, Status.DONE))
