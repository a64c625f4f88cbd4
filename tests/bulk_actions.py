"""Ordering bulk actions and working them off, for tests."""

from typing import Any

from tests.builders import claim, finish, jobs
from workron import ids
from workron.models import Job, Outcome, Reason, Status
from workron.models.actions import Action, ActionFilter, ActionState, NewAction, Verb
from workron.store import Store

FAILURE = Outcome(Reason.EXIT_CODE, exit_code=1, error="disk full: /data")


async def order(store: Store, verb: Verb, *, dry_run: bool = False, to: Any = (None, None), **where: Any) -> str:
    new = NewAction(ids.new_id(), verb, ActionFilter(**where), *to, dry_run=dry_run)
    return (await store.actions.order(new)).id


async def work_off(store: Store, action: str) -> Action:
    for _ in range(1000):
        if not await store.actions.step("r"):
            break
    found = await store.actions.get(action)
    assert found.state is not ActionState.RUNNING
    return found


async def act(store: Store, verb: Verb, **where: Any) -> Action:
    return await work_off(store, await order(store, verb, **where))


def counts(action: Action) -> tuple[int, int, int]:
    return action.matched, action.done, action.failed


async def statuses(store: Store, job_ids: list[str]) -> list[Status]:
    return [job.status for job in await found(store, job_ids)]


async def found(store: Store, job_ids: list[str]) -> list[Job]:
    return [job for job in await store.jobs(job_ids) if job is not None]


async def fail(store: Store, number: int, outcome: Outcome = FAILURE, **fields: Any) -> list[str]:
    new = jobs(number, max_attempts=1, **fields)
    await store.submit(new)
    queue = fields.get("queue", "default")
    for _ in new:
        (got,) = await claim(store, queues=[queue])
        await finish(store, got, outcome)
    return [job.id for job in new]
