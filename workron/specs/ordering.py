"""Ordering of a request's jobs: assigns ids, replaces names by ids, puts parents first."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from workron import ids, models
from workron.errors import UnknownDependency
from workron.models import Dependency
from workron.specs import graph
from workron.specs.job import NewJob

_MOST_UNKNOWN: Final = 100


def workflow_jobs(new: Sequence[NewJob], known: Mapping[str, str] = MappingProxyType({})) -> list[models.NewJob]:
    """Return the jobs with new ids, each after its dependencies, names replaced by ids.

    `known` maps names to jobs that are already stored.
    """
    positions = graph.number_names([job.name for job in new])
    parents = [[positions[name] for name in job.parents() if name in positions] for job in new]
    order = graph.topological_order(parents, [job.name or f"jobs[{position}]" for position, job in enumerate(new)])
    made = dict(zip(order, ids.new_ids(len(order)), strict=True))
    id_of = {**known, **{name: made[position] for name, position in positions.items()}}
    return [
        new[position].to_new_job(job_id, known_form(new[position].dependencies(id_of)))
        for position, job_id in made.items()
    ]


def known_form(edges: Sequence[Dependency]) -> Sequence[Dependency]:
    """Raise UnknownDependency for ids that are malformed; the store checks whether the others exist."""
    if not edges:
        return ()
    unknown = [edge.job for edge in edges if not ids.is_id(edge.job)]
    if unknown:
        raise UnknownDependency(unknown[:_MOST_UNKNOWN])
    return edges
