"""Jobs with arrays, for tests of the store."""

from collections.abc import Sequence
from typing import Any

from tests.builders import SUCCESS, claim, finish_all, new_job
from workron import ids
from workron.models import Array, Claim, NewArray, NewJob, Outcome, Reason
from workron.store import Store

BAD = Outcome(Reason.EXIT_CODE, exit_code=3, error="exit code 3")


def array_job(
    size: int, *, values: Sequence[str] | None = None, max_parallel: int | None = None, **fields: Any
) -> NewJob:
    fields.setdefault("max_attempts", 1)
    return new_job(array=NewArray(ids.new_id(), size, values, max_parallel), **fields)


def tasks_of(job: NewJob) -> list[str]:
    assert job.array is not None
    return ids.ids_from(job.array.first, job.array.size)


async def array_of(store: Store, job: NewJob) -> Array:
    array = (await store.job(job.id)).array
    assert array is not None
    return array


async def run_all(store: Store, *bad: int) -> list[Claim]:
    """Run all that waits; tasks of these indexes fail."""
    ran: list[Claim] = []
    while claims := await claim(store, limit=50):
        outcomes = [BAD if one.more["array"]["index"] in bad else SUCCESS for one in claims]
        await finish_all(store, claims, outcomes)
        ran += claims
    return ran
