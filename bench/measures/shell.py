"""Shell commands `true` with their output captured, by our real worker, relative to `xargs -P` and GNU parallel.

Ours: from the start of the first to the end of the last command, as the server noted them. The others: the whole run,
which starts nothing else.
"""

import asyncio
import shutil
import subprocess
import time

from bench.plan import Plan
from bench.real import real_worker
from bench.running import RunError
from bench.settings import settings_for
from workron import ids
from workron.models import NewJob, Status
from workron.store import Store

COMMANDS = 1_500
PARALLEL = (2, 8)


def measure(plan: Plan, turn: int) -> None:
    jobs = plan.scaled(COMMANDS, least=100)
    runs = [(name, slots) for slots in PARALLEL for name in ("workron", "xargs", "parallel")]
    shift = turn % 3
    for name, slots in runs[shift:] + runs[:shift]:
        if name == "workron":
            rate = asyncio.run(_ours(plan, jobs, slots))
        else:
            found = _theirs(plan, name, jobs, slots)
            if found is None:
                continue
            rate = found
        plan.results.add(f"shell commands, {slots} at once", name, rate)
        plan.say(f"  {name} -P{slots}: {rate:,.0f}/s")


async def _ours(plan: Plan, jobs: int, slots: int) -> float:
    plan.server.clear()
    async with Store.connect(settings_for(plan.server.url)) as store:
        names = ids.new_ids(jobs)
        await store.submit([NewJob(name, command="true") for name in names])
        with real_worker(plan.server.url, slots=slots):
            deadline = time.monotonic() + 120
            while (await store.queues())[0].counts[Status.DONE] < jobs:
                if time.monotonic() > deadline:
                    raise RunError("workron did not end its shell commands within 120 s")
                await asyncio.sleep(0.25)  # looking costs the server and us a millisecond, the end is noted anyway
        stored = [job for job in await store.jobs(names) if job is not None]
        started = min(job.started_at_ms or 0 for job in stored)
        finished = max(job.finished_at_ms or 0 for job in stored)
    return jobs / max(finished - started, 1) * 1000


def _theirs(plan: Plan, name: str, jobs: int, slots: int) -> float | None:
    program = shutil.which(name)
    if program is None:
        plan.results.missing[name] = "not installed"
        return None
    if name == "xargs":
        command = [program, f"-P{slots}", "-I{}", "sh", "-c", "true"]
    else:
        jobs = max(50, jobs // 3)
        command = [program, f"-j{slots}", "true", ":::", *map(str, range(jobs))]
    lines = "".join(f"{line}\n" for line in range(jobs)) if name == "xargs" else ""
    started = time.perf_counter()
    subprocess.run(command, input=lines, text=True, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603 - fixed commands
    return jobs / (time.perf_counter() - started)
