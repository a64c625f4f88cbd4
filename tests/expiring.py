"""Short ways to jobs whose time runs out."""

import asyncio
from typing import Final

from tests.builders import WORKER
from tests.patience import Patience
from tests.servers import Bench
from workron.models import Beat, Job, Moment, Outcome, Reason, Status
from workron.redis import formats
from workron.store import Store

SOON: Final = Moment(after_ms=150)
LATER: Final = Moment(after_ms=60_000)
PAST: Final = Moment(at_ms=1)
FAILURE: Final = Outcome(Reason.EXIT_CODE, exit_code=3, error="exit code 3\nno space left")


async def ended(store: Store, job_id: str) -> Job:
    """The job once timers have ended it."""
    return await changed(store, job_id, *(status for status in Status if status.terminal))


async def changed(store: Store, job_id: str, *statuses: Status) -> Job:
    patience = Patience(10)
    while (job := await store.job(job_id)).status not in statuses and not patience.is_over:
        await store.maintenance.promote()
        await asyncio.sleep(0.01)
    return job


async def overrun(store: Store, job_id: str, fence: int) -> None:
    """Return when the running job has been told to stop because its deadline has passed."""
    while (beat := (await store.attempts.heartbeat(WORKER, [(job_id, fence)])).attempts[fence]) is Beat.OK:
        await store.maintenance.promote()
        await asyncio.sleep(0.01)
    assert beat is Beat.CANCEL


async def due(bench: Bench) -> dict[str, int]:
    return {one.decode(): int(at) for one, at in await bench.client.zrange(bench.keys.due, 0, -1, withscores=True)}


async def pass_by(bench: Bench, kind: str, job_id: str) -> None:
    """Let a job's `deadline` or `expires` pass, and have its timer fire at the next promotion."""
    await bench.client.hset(bench.keys.job(job_id), f"{kind}_at", 1)
    await fire_again(bench, kind, job_id)


async def fire_again(bench: Bench, kind: str, job_id: str) -> None:
    """Add a timer to `due`, whether the job needs it or not."""
    await bench.client.zadd(bench.keys.due, {formats.timer(kind, job_id): 1})
