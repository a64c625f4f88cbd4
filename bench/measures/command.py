"""From submitting a shell command to its first byte of output, by our real worker: fork, exec and shell included.

Peers call a function at this point; `latency` compares that. The reader waits in an idle loop, so its share is small.
"""

import asyncio
import time

from bench.measures.latency import JOBS, PAUSE_MS, percentiles
from bench.plan import Plan
from bench.real import real_worker
from bench.running import RunError
from bench.settings import settings_for
from workron import ids
from workron.models import NewJob
from workron.store import Store

_WAIT_S = 10


def measure(plan: Plan, _turn: int) -> None:
    plan.server.clear()
    with real_worker(plan.server.url, slots=2):
        waits = asyncio.run(_submit(plan, plan.scaled(JOBS)))
    p50, p99 = percentiles(waits)
    plan.results.add("submit to first byte of a shell command, ms", "p50", p50)
    plan.results.add("submit to first byte of a shell command, ms", "p99", p99)


async def _submit(plan: Plan, jobs: int) -> list[float]:
    pipe, loop = plan.runner.pipe, asyncio.get_running_loop()
    arrived = asyncio.Event()
    moment = 0

    def readable() -> None:
        nonlocal moment
        moment = time.monotonic_ns()
        pipe.read()
        arrived.set()

    loop.add_reader(pipe.fileno(), readable)
    waits = []
    async with Store.connect(settings_for(plan.server.url)) as store:
        for _ in range(jobs + 1):
            await asyncio.sleep(PAUSE_MS / 1000)
            arrived.clear()
            started = time.monotonic_ns()
            await store.submit([NewJob(ids.new_id(), command=f"echo . > {pipe.path}")])
            try:
                await asyncio.wait_for(arrived.wait(), _WAIT_S)
            except TimeoutError:
                raise RunError(f"a command did not start within {_WAIT_S} s") from None
            waits.append((moment - started) / 1e6)
    loop.remove_reader(pipe.fileno())
    return waits[1:]  # before the first one the worker came up
