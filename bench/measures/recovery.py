"""How long after `kill -9` of its worker a job runs again: with a lease of 3 s, and on demand with default settings."""

import asyncio
import time
from contextlib import ExitStack

from bench.plan import Plan
from bench.real import process, real_worker
from bench.running import RunError
from bench.settings import settings_for
from workron import ids
from workron.models import NewJob, Status
from workron.store import Store


def measure(plan: Plan, turn: int) -> None:
    _add(plan, "3s")
    if plan.recovery and turn == 0:
        _add(plan, None)


def _add(plan: Plan, lease: str | None) -> None:
    took = asyncio.run(_recover(plan, {} if lease is None else {"WORKRON_LEASE": lease}))
    name = "recovery, default settings" if lease is None else f"recovery, lease {lease}"
    plan.results.add(name, "workron", took)
    plan.say(f"  {name}: {took:.1f} s")


async def _recover(plan: Plan, variables: dict[str, str]) -> float:
    plan.server.clear()
    url = plan.server.url
    with ExitStack() as processes:
        processes.enter_context(process("reaper", "--redis", url, **variables))
        store = Store.connect(settings_for(url))
        try:
            job_id = ids.new_id()
            await store.submit([NewJob(job_id, command="sleep 600")])
            victim = processes.enter_context(real_worker(url, slots=1, WORKRON_DRAIN_TIMEOUT="0.1s", **variables))
            await _running(store, job_id, attempts=1)
            processes.enter_context(real_worker(url, slots=1, WORKRON_DRAIN_TIMEOUT="0.1s", **variables))
            while len((await store.workers()).workers) < 2:  # noqa: ASYNC110 - another process comes up
                await asyncio.sleep(0.05)
            await asyncio.sleep(1)  # into the middle of a lease
            killed_at = time.perf_counter()
            victim.kill()
            await _running(store, job_id, attempts=2)
            return time.perf_counter() - killed_at
        finally:
            await store.aclose()


async def _running(store: Store, job_id: str, *, attempts: int) -> None:
    deadline = time.monotonic() + 120
    while True:
        job = await store.job(job_id)
        if job.status is Status.RUNNING and job.attempts == attempts:
            return
        if time.monotonic() > deadline:
            raise RunError(f"attempt {attempts} did not start within 120 s: the job is {job.status}")
        await asyncio.sleep(0.02)
