"""What an operator does with jobs and workflows that are there: cancel, retry, delete."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from workron.errors import Conflict, InvalidRequest, NotFound, StoreUnavailable, UniqueConflict
from workron.models import Cancelled, Job
from workron.redis.scripts import Scripts, UnknownReply
from workron.store.arrays import Arrays
from workron.store.maintenance import Upkeep

_IN_A_REQUEST_S: Final = 0.2


class Steering:
    """The transitions that people ask for."""

    def __init__(self, scripts: Scripts, arrays: Arrays, upkeep: Upkeep) -> None:
        self._scripts = scripts
        self._arrays = arrays
        self._upkeep = upkeep

    async def cancel(self, job_id: str, run: int | None = None, *, cascade: bool = False) -> Cancelled:
        """End a waiting job at once, or have a running command stopped; Conflict if it has ended or runs anew.

        `cascade`: cancel also all that depends on it, however far; that goes on in steps, by anybody.
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
                raise _not_this_run("cancel", reply, job_id, run)

    async def retry(self, job_id: str, run: int | None = None) -> None:
        """Start a new run of a failed or cancelled job, and re-arm the dependents that were skipped because of it."""
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
            case [b"SKIPPED", cause]:
                raise Conflict(f"job {job_id} waits for {cause.decode()}; retry that one")
            case [b"HELD", holder, key]:
                raise UniqueConflict(holder.decode(), key.decode())
            case reply:
                raise _not_this_run("retry", reply, job_id, run)

    async def cancel_workflow(self, workflow: str) -> None:
        """Cancel all jobs of a workflow that have not ended, but the final one; Conflict if all have ended."""
        match await self._scripts.workflow_cancel(workflow):
            case [b"STOPPED", propagating]:
                if propagating:
                    await self.propagate_quietly()
            case [b"FINISHED"]:
                raise Conflict(f"workflow {workflow} has already ended")
            case [b"UNKNOWN"]:
                raise NotFound("workflow", workflow)
            case reply:
                raise UnknownReply("stop", reply)

    async def delete(self, job_id: str) -> None:
        """Forget a finished job, with its tasks if it is an array's; Conflict if it has not ended, or is needed."""
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
                    raise _not_this_run("delete", reply, job_id, None)

    async def cancel_tasks(self, job: Job, indexes: Sequence[int]) -> dict[str, int]:
        """Cancel some of an array's tasks; answers how many are `cancelled`, `cancelling`, or had `ended`."""
        return await self._tasks(job, "cancel", indexes)

    async def retry_tasks(self, job: Job, indexes: Sequence[int]) -> dict[str, int]:
        """Run some of an array's tasks again; answers how many are `retried`, `ended` well, or have `not_ended`."""
        return await self._tasks(job, "retry", indexes)

    async def _tasks(self, job: Job, what: str, indexes: Sequence[int]) -> dict[str, int]:
        if job.array is None:
            raise Conflict(f"job {job.id} has no array")
        if indexes and max(indexes) >= job.array.size:
            raise InvalidRequest(f"job {job.id} has the tasks 0 to {job.array.size - 1}", field="tasks")
        return await self._arrays.tasks(job.id, what, indexes)

    async def propagate_quietly(self) -> None:
        """Have the edges of ended jobs visited now, if Redis is there, as far as a request may take."""
        with suppress(StoreUnavailable):  # the reaper goes on
            await self._upkeep.propagate(_IN_A_REQUEST_S)


def _not_this_run(script: str, reply: Any, job_id: str, run: int | None) -> Exception:
    match reply:
        case [b"UNKNOWN"]:
            return NotFound("job", job_id)
        case [b"OTHER_RUN", present]:
            return Conflict(f"job {job_id} is in run {present}, not in run {run}")
        case _:
            return UnknownReply(script, reply)
