"""Bulk actions while reapers are killed all the time and jobs run."""

import asyncio

import pytest

from tests.builders import jobs
from tests.bulk_actions import act, counts, found, order
from tests.conftest import WaitUntil
from tests.servers import Bench
from workron.models import Status
from workron.models.actions import ActionState, Verb
from workron.store import Store

pytestmark = [pytest.mark.chaos]

JOBS = 8_000


async def test_every_job_is_retried_once_whatever_process_is_killed(
    processes, store: Store, bench: Bench, wait_until: WaitUntil
) -> None:
    new = jobs(JOBS, queue="old")
    await store.submit(new)
    await act(store, Verb.CANCEL, queue="old")
    action = await order(store, Verb.RETRY, queue="old")

    async def has_begun(more_than: int) -> bool:
        return (await store.actions.get(action)).looked > more_than

    kills = 0
    while (so_far := await store.actions.get(action)).state is ActionState.RUNNING:
        reaper = processes.reaper()
        await wait_until(lambda so_far=so_far: has_begun(min(so_far.looked, JOBS - 1)))
        await asyncio.sleep(0.05)
        reaper.kill()
        reaper.wait()
        kills += 1
        if kills == 3:
            processes.reaper()
            await wait_until(lambda: _is_over(store, action), within_s=60)
    assert counts(await store.actions.get(action)) == (JOBS, JOBS, 0)
    stored = await found(store, [job.id for job in new])
    assert {(job.run, job.status) for job in stored} == {(2, Status.PENDING)}


async def _is_over(store: Store, action: str) -> bool:
    return (await store.actions.get(action)).state is not ActionState.RUNNING


async def test_leases_are_looked_after_meanwhile(processes, store: Store, wait_until: WaitUntil) -> None:
    """An action is no reason to leave jobs of dead workers lying."""
    processes.reaper()
    await store.submit(jobs(JOBS, queue="old"))
    await store.submit(jobs(1))
    worker = processes.worker()
    await wait_until(lambda: _ended(store, 1))
    worker.kill()
    worker.wait()
    (lost,) = (await store.submit(jobs(1, command="sleep 60"))).ids
    worker = processes.worker()
    await wait_until(lambda: _is(store, lost, Status.RUNNING))
    action = await order(store, Verb.CANCEL, queue="old")
    worker.kill()
    await wait_until(lambda: _is(store, lost, Status.PENDING), within_s=10)
    await wait_until(lambda: _is_over(store, action), within_s=60)


async def _is(store: Store, job_id: str, status: Status) -> bool:
    return (await store.job(job_id)).status is status


async def _ended(store: Store, number: int) -> bool:
    return sum(queue.counts[Status.DONE] for queue in await store.queues()) >= number
