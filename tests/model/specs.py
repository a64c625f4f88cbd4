"""What the machine submits and reports: strategies for jobs, ends of attempts, and settings of queues."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tests.builders import new_job
from tests.model.array_specs import ArraySpec, arrays
from tests.model.bridge import MINUTE
from workron.models import (
    Concurrency,
    Dependency,
    Moment,
    NewJob,
    OnConflict,
    Outcome,
    Rate,
    Reason,
    Unique,
    Until,
    When,
)
from workron.models.retry import RetryPolicy

QUEUES = [["default"], ["default"], ["other"], ["default", "other"], ["other", "default"]]
FAILURES = [
    Outcome(Reason.EXIT_CODE, exit_code=1, error="exit code 1"),
    Outcome(Reason.EXIT_CODE, exit_code=2, error="exit code 2"),
    Outcome(Reason.EXIT_CODE, exit_code=75, error="exit code 75", retry_after_ms=3 * MINUTE),
    Outcome(Reason.SIGNAL, signal=9, error="killed"),
    Outcome(Reason.TIMEOUT, error="timeout"),
    Outcome(Reason.WORKER_LOST, error="worker lost: it was cut off"),
]
RETRIES: list[dict[str, Any]] = [
    {},
    {"retry": RetryPolicy(delay_ms=0)},
    {"retry": RetryPolicy(2 * MINUTE, 3, 5 * MINUTE, 0)},
    {"retry": RetryPolicy(factor=1, jitter=0.2), "retry_on_exit": [1]},
    {"no_retry_on_exit": [2, 75]},
]
TIMES: list[dict[str, int]] = [
    {},
    {},
    {"delay_ms": MINUTE},
    {"in_ms": 2 * MINUTE},
    {"in_ms": -MINUTE},
]
MOMENTS = [
    None,
    None,
    None,
    Moment(after_ms=MINUTE),
    Moment(after_ms=5 * MINUTE),
    Moment(at_ms=3 * MINUTE),
    Moment(at_ms=-1),
]
"""Times that are not durations count from now."""


@dataclass
class Spec:
    """A job to be; parents are counted back from the job submitted last."""

    parents: Sequence[tuple[int, When]] = ()
    fields: dict[str, Any] = field(default_factory=dict)
    time: dict[str, int] = field(default_factory=dict)
    deadline: Moment | None = None
    expires: Moment | None = None
    unique: Unique | None = None
    array: ArraySpec | None = None

    def unique_key(self) -> Any:
        """Jobs of one submission have keys of their own."""
        return self.unique.key if self.unique else object()

    def job(self, job_id: str, before: Sequence[str], now: int) -> NewJob:
        parents = {before[-1 - pick % len(before)]: when for pick, when in self.parents if before}
        job = new_job(id=job_id, unique=self.unique, **self.fields)
        job.depends_on = tuple(Dependency(parent, when) for parent, when in parents.items())
        job.delay_ms = self.time.get("delay_ms")
        job.run_at_ms = now + self.time["in_ms"] if "in_ms" in self.time else None
        job.deadline, job.expires = (_seen_from(now, moment) for moment in (self.deadline, self.expires))
        if self.array:
            self.array.put_on(job)
        return job


def _seen_from(now: int, moment: Moment | None) -> Moment | None:
    return moment if moment is None or moment.at_ms is None else Moment(at_ms=now + moment.at_ms)


def told(job: NewJob) -> dict[str, Any]:
    """What a job says, as far as it says anything."""
    usual = NewJob("")
    said = {field.name: getattr(job, field.name) for field in dataclasses.fields(job)}
    return {name: value for name, value in said.items() if value != getattr(usual, name)}


def _some(strategy: st.SearchStrategy[Any], often: int = 3) -> st.SearchStrategy[Any]:
    return st.one_of(*[st.none()] * often, strategy)


_fields = st.builds(
    lambda retry, **fields: fields | retry,
    retry=st.sampled_from(RETRIES),
    queue=st.sampled_from(["default", "default", "other"]),
    priority=st.sampled_from([5, 5, 5, 9, 1]),
    max_attempts=st.sampled_from([1, 1, 2, 3]),
    timeout_ms=st.sampled_from([None, None, MINUTE]),
    concurrency=_some(st.builds(Concurrency, st.sampled_from("xy"), st.sampled_from([1, 2]))),
)
_uniques = st.builds(
    Unique,
    st.sampled_from("kl"),
    st.sampled_from(Until),
    st.sampled_from(OnConflict),
    st.sampled_from([3 * MINUTE, 10_000 * MINUTE]),
)
_parents = st.tuples(st.sampled_from(range(10)), st.sampled_from(When))
_any = st.builds(
    Spec,
    parents=st.lists(_parents, max_size=2),
    fields=_fields,
    time=st.sampled_from(TIMES),
    deadline=st.sampled_from(MOMENTS),
    expires=st.sampled_from(MOMENTS),
    unique=_some(_uniques),
    array=_some(arrays),
)
_simple = st.builds(
    Spec,
    parents=st.lists(_parents, max_size=1),
    fields=st.fixed_dictionaries(
        {"queue": st.sampled_from(["default", "default", "other"]), "max_attempts": st.sampled_from([1, 2])}
    ),
    array=_some(arrays, 2),
)
jobs = st.one_of(_simple, _any)
"""Those that say little run more often."""
_rates = st.sampled_from([Rate(1, MINUTE), Rate(1, 3 * MINUTE), Rate(2, 3 * MINUTE), None])
gates = st.one_of(
    st.fixed_dictionaries({"rate": _rates}),
    st.fixed_dictionaries({"rate": _rates}),
    st.fixed_dictionaries({"paused": st.booleans()}),
    st.fixed_dictionaries({"max_running": st.sampled_from([None, 1, 2])}),
    st.fixed_dictionaries({"max_pending": st.sampled_from([None, 2, 6])}),
)
