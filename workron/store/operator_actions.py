"""Operations on stored jobs and workflows: cancel, retry, delete."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from workron.errors import Conflict, InvalidRequest, NotFound, StoreUnavailable, UniqueConflict
from workron.models import Cancelled, Job
from workron.redis.scripts import Scripts, UnknownReply
from workron.store.arrays import Arrays
from workron.store.maintenance import Maintenance

_IN_A_REQUEST_S: Final = 0.2


class OperatorActions:
    """The transitions requested by users."""

    def __init__(self, scripts: Scripts, arrays: Arrays, maintenance: Maintenance) -> None:
        self._scripts = scripts
        self._arrays = arrays
        self._maintenance = maintenance

    async def cancel(self, job_id: str, run: int | None = None, *, cascade: bool = False) -> Cancelled:
        """End a waiting job at once, or stop its running command; raise Conflict if it has ended or is in a new run.

        `cascade`: also cancel all direct and indirect dependents; this continues in steps, by any process.
        """
        match await self._scripts.job_cancel(job_id, "" if run is None else str(run), cascade=cascade):
            case [word, propagating, tasks] if word in (b"CANCELLED", b"CANCELLING"):
                if propagating:
                    await self.propagate_quietly()
                if tasks:
                    await self._arrays.work_on_quietly(job_id)
                return Cancelled(word.decode().lower())
            case [b"ENDED", status]:
                raise Conflict(f"job {job_id} has already ended: {status.decode()}")
            case reply:
                raise _not_this_run("job_cancel", reply, job_id, run)

    async def retry(self, job_id: str, run: int | None = None) -> None:
        """Start a new run of a failed or cancelled job, and reactivate the dependents skipped because of it."""
        match await self._scripts.job_retry(job_id, "" if run is None else str(run)):
            case [b"RETRIED", propagating, tasks]:
                if propagating:
                    await self.propagate_quietly()
                if tasks:
                    await self._arrays.work_on_quietly(job_id)
            case [b"NOT_ENDED", status]:
                raise Conflict(f"job {job_id} has not ended: {status.decode()}")
            case [b"SUCCEEDED"]:
                raise Conflict(f"job {job_id} is done; submit it again to run it again")
            case [b"SKIPPED", cause, gone]:
                remedy = "which is no longer stored: submit the job again" if gone else "retry that one"
                raise Conflict(f"job {job_id} waits for {cause.decode() or 'another job'}, {remedy}")
            case [b"HELD", holder, key]:
                raise UniqueConflict(holder.decode(), key.decode())
            case reply:
                raise _not_this_run("job_retry", reply, job_id, run)

    async def cancel_workflow(self, workflow: str) -> None:
        """Cancel all unfinished jobs of a workflow except the final one; raise Conflict if all have ended."""
        match await self._scripts.workflow_cancel(workflow):
            case [b"STOPPED", propagating]:
                if propagating:
                    await self.propagate_quietly()
            case [b"FINISHED"]:
                raise Conflict(f"workflow {workflow} has already ended")
            case [b"UNKNOWN"]:
                raise NotFound("workflow", workflow)
            case reply:
                raise UnknownReply("workflow_cancel", reply)

    async def delete(self, job_id: str) -> None:
        """Delete a finished job, with its tasks if it is an array's; raise Conflict if it is unfinished or needed."""
        while True:
            match await self._scripts.job_delete(job_id):
                case [b"MORE"]:
                    continue
                case [b"DELETED"]:
                    return
                case [b"NOT_ENDED", status]:
                    raise Conflict(f"job {job_id} has not ended: {status.decode()}")
                case [b"NEEDED", why]:
                    raise Conflict(f"job {job_id} can't be deleted: {why.decode()}")
                case reply:
                    raise _not_this_run("job_delete", reply, job_id, None)

    async def cancel_tasks(self, job: Job, indexes: Sequence[int]) -> dict[str, int]:
        """Cancel some of an array's tasks; return how many are `cancelled`, `cancelling`, or had `ended`."""
        return await self._tasks(job, "cancel", indexes)

    async def retry_tasks(self, job: Job, indexes: Sequence[int]) -> dict[str, int]:
        """Retry some of an array's tasks; return how many are `retried`, `ended` well, or have `not_ended`."""
        return await self._tasks(job, "retry", indexes)

    async def _tasks(self, job: Job, what: str, indexes: Sequence[int]) -> dict[str, int]:
        if job.array is None:
            raise Conflict(f"job {job.id} has no array")
        if indexes and max(indexes) >= job.array.size:
            raise InvalidRequest(f"job {job.id} has the tasks 0 to {job.array.size - 1}", field="tasks")
        return await self._arrays.tasks(job.id, what, indexes)

    async def propagate_quietly(self) -> None:
        """Propagate ends of jobs now, within the time limit of a request, unless Redis is unavailable."""
        with suppress(StoreUnavailable):  # the reaper goes on
            await self._maintenance.propagate(_IN_A_REQUEST_S)


def _not_this_run(script: str, reply: Any, job_id: str, run: int | None) -> Exception:
    match reply:
        case [b"UNKNOWN"]:
            return NotFound("job", job_id)
        case [b"OTHER_RUN", present]:
            return Conflict(f"job {job_id} is in run {present}, not in run {run}")
        case _:
            return UnknownReply(script, reply)
