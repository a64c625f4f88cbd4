"""Arrays that the machine submits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from workron import ids
from workron.models import Dependency, NewArray, NewJob, When

APART = 10
"""Ids between the first tasks of two arrays: more than an array has tasks."""


@dataclass
class ArraySpec:
    """An array to be; `follows` is counted back from the array submitted last."""

    size: int
    parallel: int | None = None
    has_values: bool = False
    follows: tuple[int, When] | None = None

    def put_on(self, job: NewJob) -> None:
        values = [f"value {place}" for place in range(self.size)] if self.has_values else None
        first = ids.encode(2 * ids.decode(job.id) + APART * (ids.decode(job.id) % 100))
        job.array = NewArray(first, self.size, values, self.parallel)


def follow(job: NewJob, spec: Any, others: Sequence[NewJob]) -> None:
    """Have an array follow one of the others, mostly as one of its size."""
    array: ArraySpec | None = spec.array
    if array is None or array.follows is None or not others or job.final:
        return
    back, when = array.follows
    known = [other for other in others if other.array] or others
    followed = known[-1 - back % len(known)]
    if followed.array and back < 4:
        ArraySpec(followed.array.size, array.parallel, array.has_values).put_on(job)
    job.depends_on = (Dependency(followed.id, when, matching=True), *list(job.depends_on)[:1])
    if len({edge.job for edge in job.depends_on}) < len(job.depends_on):
        job.depends_on = job.depends_on[:1]


arrays = st.builds(
    ArraySpec,
    size=st.sampled_from([1, 2, 3, 3, 4]),
    parallel=st.sampled_from([None, 1, 2]),
    has_values=st.booleans(),
    follows=st.one_of(st.none(), st.tuples(st.sampled_from(range(5)), st.sampled_from(When))),
)
