"""The model's rules for one job: how it moves, and how it ends. What that means for others: `graph`.

A job moves by `_move` alone: there it gives back and takes its unique key, tells its workflow, gets its place in line.
"""

from collections import deque
from typing import Any

from tests.model.state import ENDED, Job, Policy, Queue, Slots, Workflow
from workron.models import Moment, OnFailure, Until

REFUNDS = 10


class Transitions:
    """All that is stored, and the rules by which it changes."""

    def __init__(self, policy: Policy, now: int) -> None:
        self.policy = policy
        self.now = now
        self.fence = 0
        self.jobs: dict[str, Job] = {}
        self.queues: dict[str, Queue] = {}
        self.workflows: dict[str, Workflow] = {}
        self.unique: dict[str, tuple[str, int, int]] = {}
        """Key → job, its run, and when it is free in any case."""
        self.slots: dict[str, Slots] = {}
        self.walks: deque[tuple[str, str]] = deque()
        self.cascades = 0
        self._stirred: dict[str, str] = {}
        self.finals: list[str] = []
        """Final jobs that the last call started: of several, which one comes first is not said."""

    # --- moving -----------------------------------------------------------------------------------

    def _ready(self, job: Job) -> str:
        return "scheduled" if job.run_at and job.run_at > self.now else "pending"

    def _move(self, job: Job, to: str, *, front: bool = False, asked: bool = True) -> None:
        was = job.status
        to = self._tell_unique_key(job, was, to, asked)
        to = self._tell_workflow(job, was, to)
        self._tell_timers(job, was, to)
        to = self._tell_array(job, was, to, asked)
        waits_for_slot = job.new.concurrency is not None
        if waits_for_slot:
            self._tell_slots(job, was, to)
        elif was == "pending":
            self._list_of(job).remove(job.id)
        job.status = to
        if to == "pending" and not waits_for_slot:
            self._list_of(job).insert(0 if front else len(self._list_of(job)), job.id)

    def _list_of(self, job: Job) -> list[str]:
        return self.queues.setdefault(job.queue, Queue()).lists[job.priority]

    def _tell_unique_key(self, job: Job, was: str, to: str, asked: bool) -> str:
        """A key is held until its job has ended, or has started; a further run takes it again, or can't be."""
        unique = job.new.unique
        if unique is None or was == "new":
            return to
        if to in ENDED or (to == "running" and unique.until is Until.STARTED):
            if self.unique.get(unique.key, ())[:2] == (job.id, job.run):
                del self.unique[unique.key]
        elif was in ENDED:
            other = self._holder(unique.key)
            if other is None:
                self._take_key(job)
            elif not asked and not job.new.array:  # an array goes on as its tasks do
                job.finished_at, job.reason = self.now, "cancelled"
                job.error = f"cancelled: job {other.id} holds its unique key"
                return "cancelled"
        elif was == "running" and unique.until is Until.STARTED and self._holder(unique.key) is None:
            self._take_key(job)
        return to

    def _tell_array(self, job: Job, was: str, to: str, asked: bool) -> str:
        return to

    def _take_key(self, job: Job) -> None:
        assert job.new.unique
        self.unique[job.new.unique.key] = (job.id, job.run, self.now + job.new.unique.ttl_ms)

    def _holder(self, key: str) -> Job | None:
        job_id, run, until = self.unique.get(key, ("", 0, 0))
        job = self.jobs.get(job_id)
        return job if job and until > self.now and not job.ended and job.run == run else None

    def _tell_timers(self, job: Job, was: str, to: str) -> None:
        """Lengths of time count from the submission, and anew from a further run; moments that have passed go."""
        if to in ENDED or was not in ("new", *ENDED):
            return
        again = was != "new"
        if again:
            job.expired_at = None
        since = self.now if again else job.created_at
        job.deadline_at = self._moment(job.new.deadline, job.deadline_at, again, since)
        job.expires_at = self._moment(job.new.expires, job.expires_at, again, since)

    def _moment(self, said: Moment | None, before: int | None, again: bool, since: int) -> int | None:
        if said is None or (again and said.at_ms is not None and (before is None or before <= self.now)):
            return None
        return said.at_ms if said.at_ms is not None else since + (said.after_ms or 0)

    def _tell_slots(self, job: Job, was: str, to: str) -> None:
        """The limit of a key is that of the job made last; who was given back is the next one in its line."""
        assert job.new.concurrency
        slots = self.slots.setdefault(job.new.concurrency.key, Slots())
        made_at = 0 if job.task else job.created_at
        if was in ("new", *ENDED) and to not in ENDED and (slots.limit == 0 or (made_at and made_at >= slots.since)):
            slots.limit, slots.since = job.new.concurrency.limit, made_at
        if to == "pending" and was == "running":
            job.place = slots.first = slots.first - 1
        elif to == "pending":
            job.place = slots.last = slots.last + 1

    def _of_key(self, key: str) -> list[Job]:
        return [job for job in self.jobs.values() if job.new.concurrency and job.new.concurrency.key == key]

    def _free_slots(self, key: str) -> int:
        return self.slots[key].limit - sum(job.status == "running" for job in self._of_key(key))

    def _tell_workflow(self, job: Job, was: str, to: str) -> str:
        """The first job that fails for good stops a workflow that says so; a further run has it go on."""
        workflow = self.workflows.get(job.workflow or "")
        if workflow is None or not workflow.has_hands:
            return to
        if job.new.final:
            if was == "new":
                workflow.final = job.id
            if was == "new" or was in ENDED or to in ENDED:
                again = was != "new" and to in ENDED and to != "cancelled"
                self._stir(workflow, "again" if again else "ended")
            return "blocked" if was == "new" else to
        if was == "new":
            return to
        if to in ENDED:
            self._stir(workflow, "ended")
            if to == "failed" and workflow.on_failure is OnFailure.STOP and workflow.stopped is None:
                workflow.stopped = ("failed", job.id)
                self._go_on_stopping(workflow)
        elif was in ENDED:
            self._stirred[workflow.id] = "again"
            self._resume(job)
        return to

    def _stir(self, workflow: Workflow, what: str) -> None:
        if what == "again" or workflow.id not in self._stirred:
            self._stirred[workflow.id] = what

    def _resume(self, job: Job) -> None:
        workflow = self.workflows.get(job.workflow or "")
        if workflow and workflow.stop_at is None:
            workflow.stopped = None

    def _go_on_stopping(self, workflow: Workflow) -> None:
        if workflow.stop_at is None:
            self.walks.append(("stop", workflow.id))
        workflow.stop_at = 0

    # --- ends -------------------------------------------------------------------------------------

    def _end(self, job: Job, status: str, *, fence: int | None = None, **outcome: Any) -> None:
        """End a job. `fence`: of the attempt whose own result this is."""
        self._write_outcome(job, outcome)
        job.finished_at = self.now
        job.fence = fence
        self._move(job, status)
        self._to_visit(job)

    def _write_outcome(self, job: Job, outcome: dict[str, Any]) -> None:
        for name in ("reason", "exit_code", "signal", "error", "caused_by", "result"):
            setattr(job, name, outcome.get(name))

    def _conclude(self, job: Job, outcome: dict[str, Any], wait_ms: int | None = None) -> str:
        """Decide what an ended attempt means: done, another attempt, or the end.

        After an accepted cancel every end is `cancelled`, after a missed deadline `failed`. A lost attempt goes back at
        once, a failed one after its wait.
        """
        final = outcome.pop("final", False)
        if job.cancel_requested_at is not None:
            self._end(job, "cancelled", **outcome | {"reason": "cancelled"})
        elif job.expired_at is not None:
            said = outcome.get("error") or ""
            if outcome.get("reason") == "cancelled" and said.partition("\n")[0] == "cancelled":
                said = said.partition("\n")[2]
            told = "expired: not done by its deadline" + (f"\n{said}" if said else "")
            self._end(job, "failed", **outcome | {"reason": "expired", "error": told})
        elif outcome.get("reason") is None:
            self._end(job, "done", **outcome)
        elif final or job.attempts >= job.max_attempts:
            self._end(job, "failed", **outcome)
        else:
            self._requeue(job, outcome, None if outcome["reason"] == "worker_lost" else wait_ms)
        return job.status

    def _requeue(self, job: Job, outcome: dict[str, Any], wait_ms: int | None) -> None:
        fence = outcome.pop("fence", None)
        self._write_outcome(job, outcome)
        if wait_ms is not None:
            job.run_at = self.now + wait_ms
        to = "pending" if wait_ms is None else "scheduled"
        if fence:
            job.earlier = (fence, to)
        job.fence = job.worker = None
        self._move(job, to, front=wait_ms is None)

    def _give_back(self, job: Job, fence: int) -> str:
        """An attempt that is given back unfinished does not count, ten times; its job is the next one."""
        if job.cancel_requested_at is not None or job.expired_at is not None:
            return self._conclude(job, {"fence": fence, "reason": "cancelled"})
        job.releases += 1
        if job.releases <= REFUNDS:
            job.attempts -= 1
        job.fence = job.worker = job.started_at = None
        self._move(job, "pending", front=True)
        return "pending"

    def _cancel(self, job: Job, error: str | None = None, caused_by: str | None = None) -> str:
        if job.status == "running":
            job.cancel_requested_at = job.cancel_requested_at or self.now
            return "cancelling"
        job.cancel_requested_at = self.now
        self._end(job, "cancelled", reason="cancelled", error=error, caused_by=caused_by)
        return "cancelled"

    def _start_anew(self, job: Job, *, asked: bool = True) -> None:
        """Have a job that has ended run once more, with all its attempts, as soon as its dependencies allow."""
        if job.fence:
            job.earlier = (job.fence, job.status)
        self._write_outcome(job, {})
        job.run, job.attempts, job.releases, job.losses = job.run + 1, 0, 0, 0
        job.fence = job.worker = job.run_at = None
        job.started_at = job.finished_at = job.cancel_requested_at = None
        self._move(job, "blocked" if job.new.final or job.open else "pending", asked=asked)
        self._to_visit(job)

    def _expire(self, kind: str, job: Job) -> None:
        """A timer has come: who waits ends, who runs past its deadline is stopped; a start is in time for good."""
        if job.ended:
            return
        told = "not done by its deadline" if kind == "deadline" else "not started in time"
        told = f"expired: {told}" + (f"\n{job.error}" if job.error else "")
        last = {"exit_code": job.exit_code, "signal": job.signal, "reason": "expired", "error": told}
        if job.status == "running":
            if kind == "deadline" and job.expired_at is None:
                job.expired_at = self.now
        elif kind == "deadline":
            self._end(job, "failed", **last)
        elif job.attempts == 0:
            self._end(job, "cancelled", **last)

    def _to_visit(self, job: Job) -> None:
        if job.children and not job.to_visit:
            job.to_visit = True
            self.walks.append(("edges", job.id))
