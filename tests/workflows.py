"""Short ways to workflows and how their jobs stand, for tests of the store."""

from tests.builders import claim, finish
from workron.models import Claim, NewJob, OnFailure, Outcome, Reason
from workron.store import Store

FAILURE = Outcome(Reason.EXIT_CODE, exit_code=1)


async def start(store: Store, *members: NewJob, on_failure: OnFailure = OnFailure.CONTINUE) -> str:
    """Submit a workflow; returns its id."""
    submitted = await store.submit(members, as_workflow=True, on_failure=on_failure)
    assert submitted.workflow
    return submitted.workflow


async def statuses(store: Store, *members: NewJob | str) -> list[str]:
    found = await store.jobs([one if isinstance(one, str) else one.id for one in members])
    return [str(job and job.status) for job in found]


async def claim_one(store: Store) -> Claim:
    (claimed,) = await claim(store, wait=True)
    return claimed


async def end(store: Store, outcome: Outcome | None = None) -> str:
    claimed = await claim_one(store)
    await (finish(store, claimed) if outcome is None else finish(store, claimed, outcome))
    return claimed.id
