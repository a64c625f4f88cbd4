"""An occurrence as a submission: with ids of its own, and only while its schedule is unchanged."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Final

from workron import ids
from workron.models import Idempotency, NewJob, Submitted
from workron.redis import formats
from workron.schedules.models import Schedule, Work
from workron.schedules.plan import Kind
from workron.store import Store
from workron.times import rfc3339

SCOPE: Final = "schedule"
"""Prefix of Idempotency-Keys, by which `lua/lib/schedules.lua` recognizes those of schedules."""


async def submit(
    store: Store,
    schedule: Schedule,
    work: Work,
    *,
    kind: Kind,
    at_ms: int,
    following_ms: int | None = None,
    salt: str = "",
    key: str | None = None,
) -> Submitted:
    """Store the jobs of an occurrence and advance its schedule, atomically.

    Raises IdempotencyConflict if the schedule has changed. `salt` distinguishes manual runs, `key`
    their repeats.
    """
    _prepare(work.jobs, schedule, at_ms, await _first_id(store, schedule, at_ms, salt))
    fingerprint = formats.occurrence(schedule.version, kind, at_ms, following_ms, key)
    return await store.submit(work.jobs, **work.options, idempotency=Idempotency(SCOPE, schedule.name, fingerprint))


async def _first_id(store: Store, schedule: Schedule, at_ms: int, salt: str) -> str:
    """Return the id of an occurrence's first job; another one if a large submission with it was aborted before."""
    for attempt in count():
        first = first_id(schedule, at_ms, f"{salt} {attempt}")
        if not schedule.definition.is_workflow or not await store.schedules.was_aborted(first):
            return first
    raise AssertionError


def first_id(schedule: Schedule, at_ms: int, salt: str = " 0") -> str:
    """Return an id derived from the current schedule and the occurrence's time.

    Another process may continue a staged submission of the occurrence: it must not be of an older version.
    """
    return _derived(f"{schedule.name} {schedule.version} {at_ms}{salt}", at_ms)


def _derived(text: str, at_ms: int) -> str:
    """Return a UUIDv7 of this time, whose random part is derived from the text."""
    noise = int.from_bytes(hashlib.sha256(text.encode()).digest()[:10], "big")
    return ids.encode((at_ms % 2**48) << 80 | 7 << 76 | (noise >> 68) << 64 | 2 << 62 | noise % 2**62)


def _prepare(jobs: Sequence[NewJob], schedule: Schedule, at_ms: int, first: str) -> None:
    """Give the jobs their ids and the schedule's API key, and their commands the names of schedule and occurrence."""
    renamed = dict(zip([job.id for job in jobs], ids.ids_from(first, len(jobs)), strict=True))
    said = {"WORKRON_SCHEDULE": schedule.name, "WORKRON_SCHEDULED_AT": rfc3339(at_ms)}
    for job in jobs:
        job.id, job.key = renamed[job.id], schedule.definition.key
        job.env = {**job.env, **said}
        job.depends_on = [replace(edge, job=renamed[edge.job]) for edge in job.depends_on]
        if job.array is not None:
            job.array = replace(job.array, first=_derived(f"{job.id} tasks", at_ms))
