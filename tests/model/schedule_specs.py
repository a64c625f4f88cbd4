"""What schedules of the machine say: as the model has it, and as the store is told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from hypothesis import strategies as st

from tests.builders import new_job
from tests.model.bridge import MINUTE
from tests.model.cron_lines import LINES, Line
from workron import ids
from workron.models import Concurrency, Dependency, Moment, NewJob, OnConflict, OnFailure, Unique, Until
from workron.schedules.models import CatchUp, Definition, Overlap

NAMES: Final = "st"
UNTIL_TOMORROW: Final = 24 * 60 * MINUTE


@dataclass(frozen=True)
class Work:
    """The jobs of each occurrence; those of a workflow are a chain, perhaps with a final one at its end."""

    jobs: Sequence[Mapping[str, Any]]
    is_workflow: bool = False
    on_failure: OnFailure = OnFailure.CONTINUE
    has_final: bool = False

    def body(self) -> dict[str, Any]:
        """As a request says it."""
        bodies = [_body(fields) for fields in self.jobs]
        if not self.is_workflow:
            return bodies[0]
        for place, body in enumerate(bodies):
            body["name"] = f"j{place}"
            if place == len(bodies) - 1 and self.has_final:
                body["final"] = True
            elif place:
                body["depends_on"] = [f"j{place - 1}"]
        return {"name": "w", "jobs": bodies, "on_failure": self.on_failure.value}

    def made(self, first: str, env: Mapping[str, str]) -> list[NewJob]:
        """As the store takes it, under ids of their own."""
        made = ids.ids_from(first, len(self.jobs))
        jobs = [
            new_job(id=job_id, env=env, **_unspelled(fields)) for job_id, fields in zip(made, self.jobs, strict=True)
        ]
        for before, job in pairwise(jobs):
            job.depends_on = (Dependency(before.id),)
        if self.has_final:
            jobs[-1].final, jobs[-1].depends_on = True, ()
        return jobs


def _unspelled(fields: Mapping[str, Any]) -> dict[str, Any]:
    said = dict(fields)
    if "expires_ms" in said:
        said["expires"] = Moment(after_ms=said.pop("expires_ms"))
    return said


def _body(fields: Mapping[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {"command": "true", **fields}
    if concurrency := said.get("concurrency"):
        said["concurrency"] = {"key": concurrency.key, "limit": concurrency.limit}
    if unique := said.get("unique"):
        spelled = {"until": unique.until.value, "on_conflict": unique.on_conflict.value, "ttl": unique.ttl_ms // 1000}
        said["unique"] = {"key": unique.key, **spelled}
    if "delay_ms" in said:
        said["delay"] = said.pop("delay_ms") // 1000
    if "expires_ms" in said:
        said["expires"] = f"{said.pop('expires_ms') // MINUTE}m"
    return said


@dataclass(frozen=True)
class Said:
    """What a schedule says."""

    line: Line
    overlap: Overlap
    catch_up: CatchUp
    paused: bool
    work: Work

    def definition(self) -> Definition:
        line, work = self.line, self.work
        return Definition(
            line.cron,
            line.timezone,
            line.dst,
            self.overlap,
            self.catch_up,
            paused=self.paused,
            work=work.body(),
            is_workflow=work.is_workflow,
        )


_uniques = st.builds(
    Unique, st.sampled_from("kl"), st.just(Until.FINISHED), st.sampled_from(OnConflict), st.just(UNTIL_TOMORROW)
)
_concurrencies = st.builds(Concurrency, st.sampled_from("xy"), st.just(1))
_fields: st.SearchStrategy[dict[str, Any]] = st.builds(
    lambda usual, special: usual | special,
    st.fixed_dictionaries(
        {
            "queue": st.sampled_from(["default", "default", "other"]),
            "priority": st.sampled_from([5, 5, 9]),
            "max_attempts": st.sampled_from([1, 1, 2]),
        }
    ),
    st.one_of(
        st.just({}),
        st.just({}),
        st.just({"delay_ms": MINUTE}),
        st.just({"expires_ms": 5 * MINUTE}),
        st.builds(lambda unique: {"unique": unique}, _uniques),
        st.builds(lambda unique: {"unique": unique}, _uniques),
        st.builds(lambda concurrency: {"concurrency": concurrency}, _concurrencies),
    ),
)
_works = st.one_of(
    *[st.builds(lambda fields: Work((fields,)), _fields)] * 3,
    st.builds(Work, st.tuples(_fields), st.just(True)),
    st.builds(
        Work,
        st.lists(_fields, min_size=2, max_size=3).filter(lambda jobs: _keys_differ(jobs)),
        st.just(True),
        st.sampled_from(OnFailure),
        st.booleans(),
    ),
)


def _keys_differ(jobs: Sequence[Mapping[str, Any]]) -> bool:
    keys = [job["unique"].key for job in jobs if "unique" in job]
    return len(keys) == len(set(keys))


says = st.builds(
    Said,
    st.sampled_from(LINES),
    st.sampled_from([Overlap.ALLOW, Overlap.SKIP, Overlap.QUEUE, Overlap.QUEUE]),
    st.sampled_from(CatchUp),
    st.sampled_from([False, False, False, True]),
    _works,
)
