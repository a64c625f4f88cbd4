"""A schedule in a request, and the jobs of its occurrences."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Self

import orjson
from pydantic import ConfigDict, StringConstraints, ValidationError, model_validator

from workron import ids, models
from workron.errors import InvalidRequest, TooLarge
from workron.models.job_fields import NO_NUL
from workron.names import NAME
from workron.schedules import times
from workron.schedules.models import CatchUp, Definition, Overlap, Work
from workron.schedules.times import Dst
from workron.specs.fields import Body
from workron.specs.job import NewJob
from workron.specs.ordering import workflow_jobs
from workron.specs.workflow import NewWorkflow

SCHEDULE_PATTERN: Final = f"^{NAME}$"
MOST_BYTES: Final = 1024 * 1024
"""Maximum size of the job or workflow of a schedule, as JSON."""

_SCHEMA: Final[dict[str, Any]] = {
    "oneOf": [
        {"required": ["job"], "properties": {"job": {"type": "object"}, "workflow": {"type": "null"}}},
        {"required": ["workflow"], "properties": {"workflow": {"type": "object"}, "job": {"type": "null"}}},
    ],
    "examples": [
        {"cron": "30 2 * * 1-5", "timezone": "Europe/Berlin", "job": {"command": "make report"}, "overlap": "skip"}
    ],
}


class NewSchedule(Body):
    """A job or workflow to start periodically."""

    model_config = ConfigDict(json_schema_extra=_SCHEMA)

    cron: Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NO_NUL)]
    """Minute, hour, day of month, month, day of week; or `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`."""
    timezone: Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=NO_NUL)] = "UTC"
    """Time zone of `cron`, an IANA name like `Europe/Berlin`."""
    job: NewJob | None = None
    """What to start. Give exactly one of `job` and `workflow`, without start times or dependencies on other jobs."""
    workflow: NewWorkflow | None = None
    overlap: Overlap = Overlap.ALLOW
    """While an earlier run is unfinished: start another, skip the occurrence, or queue it; at most one is queued."""
    catch_up: CatchUp = CatchUp.LAST
    """Which occurrences to start that were missed by more than a minute, when Redis or all reapers were unavailable."""
    dst: Dst | None = None
    """Times that a clock change skips or repeats: `once` starts each once, `skip` omits the skipped ones,
    `twice` starts the repeated ones twice. By default `twice` if the hour is `*` or all hours, otherwise `once`."""
    paused: bool | None = None
    """Left out, it stays unchanged; a new schedule is not paused."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.job is None) == (self.workflow is None):
            raise ValueError("give exactly one of job and workflow")
        return self

    def definition(self, raw: bytes) -> Definition:
        """Return the store's form; `raw` is the request's body, whose job or workflow is stored as given."""
        is_workflow = self.workflow is not None
        work = orjson.loads(raw)["workflow" if is_workflow else "job"]
        if len(orjson.dumps(work)) > MOST_BYTES:
            raise TooLarge(f"the job or workflow of a schedule has at most {MOST_BYTES:,} bytes")
        cron = times.fields(self.cron)
        times.zone(self.timezone)
        dst = self.dst or times.usual_dst(cron)
        definition = Definition(
            cron, self.timezone, dst, self.overlap, self.catch_up, bool(self.paused), work, is_workflow=is_workflow
        )
        expand(definition)
        return definition


def expand(definition: Definition) -> Work:
    """Return the jobs that a schedule starts; raise InvalidRequest if they are invalid."""
    raw = orjson.dumps(definition.work)
    try:
        if not definition.is_workflow:
            job = NewJob.model_validate_json(raw)
            _refuse_times("job", [job])
            _refuse_parents("job", job.parents())
            return Work(_timeless("job", [job.to_new_job(ids.new_id(), ())]))
        workflow = NewWorkflow.model_validate_json(raw)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise InvalidRequest(f"a schedule's work is no longer valid: {fault['msg']}") from None
    _refuse_times("workflow", workflow.jobs)
    names = {job.name for job in workflow.jobs}
    _refuse_parents("workflow", [parent for job in workflow.jobs for parent in job.parents() if parent not in names])
    jobs = _timeless("workflow", workflow_jobs(workflow.jobs))
    options = {"workflow": workflow.name, "as_workflow": True, "on_failure": workflow.on_failure}
    return Work(jobs, options)


def _timeless(field: str, jobs: list[models.NewJob]) -> list[models.NewJob]:
    """Raise InvalidRequest for absolute times: they would have passed at the next occurrence."""
    if any(end is not None and end.at_ms is not None for job in jobs for end in (job.deadline, job.expires)):
        raise InvalidRequest("a schedule's deadline and expires must be durations like 2h", field=field)
    return jobs


def _refuse_times(field: str, jobs: Sequence[NewJob]) -> None:
    if any(job.run_at is not None for job in jobs):
        raise InvalidRequest("a schedule can't have run_at: use delay", field=field)


def _refuse_parents(field: str, parents: Sequence[str]) -> None:
    if parents:
        known = "other jobs of its workflow" if field == "workflow" else "nothing"
        raise InvalidRequest(f"a schedule's jobs can depend on {known} only, not on {parents[0]!r}", field=field)
