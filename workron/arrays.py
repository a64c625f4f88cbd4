"""Arrays: many tasks of one job. Their values are stored before it, their tasks are made as they may start."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from workron.chunks import MAX_BYTES
from workron.errors import StoreFull, StoreUnavailable
from workron.models import NewJob
from workron.scripts import Scripts

STEP: Final = 100
"""Tasks in one call."""
_VALUES_PER_CALL: Final = 5_000
_WITHOUT_JOB_MS: Final = 3_600_000


async def store_values(scripts: Scripts, job: NewJob) -> None:
    """Store the values of a job's array, in calls of bounded work; forgotten unless the job follows within an hour."""
    if job.array is None or job.array.values is None:
        return
    offset = 0
    for page in _pages(job.array.values):
        if (await scripts.values(job.id, offset, _WITHOUT_JOB_MS, page))[0] == b"FULL":
            raise StoreFull("Redis has no memory left for new work", retry_after_s=5.0)
        offset += len(page)


async def work_on(scripts: Scripts, job_id: str) -> int:
    """Do what is to be done now for an array; returns the number of calls."""
    calls = 1
    while (await scripts.array(job_id, STEP))[0] == b"MORE":
        calls += 1
    return calls


async def work_on_quietly(scripts: Scripts, job_id: str) -> None:
    """The same; if Redis goes away, the reaper goes on."""
    with suppress(StoreUnavailable):
        await work_on(scripts, job_id)


def _pages(values: Sequence[str]) -> Iterator[list[str]]:
    page: list[str] = []
    size = 0
    for value in values:
        if page and (len(page) == _VALUES_PER_CALL or size + len(value) > MAX_BYTES // 4):
            yield page
            page, size = [], 0
        page.append(value)
        size += len(value)
    yield page
