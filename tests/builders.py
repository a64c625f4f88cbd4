"""Short ways to the usual objects and calls, for tests of the store."""

import asyncio
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from tests.patience import Patience
from tests.servers import lapse
from workron import ids
from workron.models import Claim, ClaimRequest, Dependency, Finished, NewJob, Outcome, Result, When, WorkerInfo
from workron.store import Store

SUCCESS = Outcome(None, exit_code=0)
WORKER = WorkerInfo("w1", "host", 1, ("default",), 2, 1, 0, "0")
_requests = itertools.count(1)


def new_job(**fields: Any) -> NewJob:
    """A job that runs `true`, unless told otherwise; ids ascend."""
    if "argv" not in fields:
        fields.setdefault("command", "true")
    return NewJob(id=fields.pop("id", None) or ids.new_id(), **fields)


def jobs(size: int, **fields: Any) -> list[NewJob]:
    """Jobs with consecutive ids, as one submission has them."""
    return [new_job(id=job_id, **fields) for job_id in ids.new_ids(size)]


def after(*parents: str, when: When = When.DONE) -> tuple[Dependency, ...]:
    return tuple(Dependency(parent, when) for parent in parents)


async def submit(store: Store, *jobs: NewJob) -> list[str]:
    return list((await store.submit(jobs)).ids)


async def claim(
    store: Store,
    *,
    worker: str = "w1",
    queues: list[str] | None = None,
    limit: int = 1,
    wait: bool = False,
    begins: bool = False,
) -> list[Claim]:
    """Claim with a fresh request; `wait`: until there is something, at most 10 s. `begins`: see `ClaimRequest`."""
    patience = Patience(10)
    while True:
        request = ClaimRequest(worker, queues or ["default"], limit, f"boot:{next(_requests)}", begins=begins)
        claimed = await store.attempts.claim(request)
        if claimed.claims or not wait or patience.is_over:
            return list(claimed.claims)
        await asyncio.sleep(0.01)


async def finish(store: Store, claim: Claim, outcome: Outcome = SUCCESS) -> Finished:
    (finished,) = await finish_all(store, [claim], [outcome])
    return finished


async def finish_all(store: Store, claims: Sequence[Claim], outcomes: Iterable[Outcome]) -> Sequence[Finished]:
    """Report them in one call, as a worker does, and go over their edges."""
    results = [Result(one.id, one.fence, outcome) for one, outcome in zip(claims, outcomes, strict=True)]
    exchanged = await store.attempts.finish(results, worker="w1")
    if exchanged.propagating:
        await store.maintenance.propagate()
    return exchanged.finished


async def reap_all(store: Store) -> int:
    """Have all leases lapse, and reap until some were taken back; returns how many."""
    await lapse(store)
    for _ in range(500):
        reaped = await store.maintenance.reap()
        if reaped.requeued or reaped.ended:
            return reaped.requeued + reaped.ended
        await asyncio.sleep(0.02)
    return 0
