"""The model: what operators do with jobs, workflows and queues."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.model.staging import Staging
from tests.model.state import ENDED, Job, Queue, Refused
from workron.models.actions import ACTS_ON, Verb


class Steering(Staging):
    """A scheduler whose jobs can be cancelled, retried, moved and deleted."""

    def _known(self, job_id: str, run: int | None = None) -> Job:
        job = self.jobs.get(job_id)
        if job is None:
            raise Refused("NotFound")
        if run not in (None, job.run):
            raise Refused("Conflict")
        return job

    def cancel(self, job_id: str, run: int | None = None, *, cascade: bool = False) -> str:
        job = self._known(job_id, run)
        if job.ended and job.status != "cancelled":
            raise Refused("Conflict")
        if cascade and (job.children or job.new.array):
            self.cascades += 1
            self._push_cascade(job, self.cascades)
        nothing_new = job.ended
        if self.has_begun(job) and not nothing_new:
            return self._cancel_array(job, cascade)
        word = "cancelled" if nothing_new else self._cancel(job)
        self._settle()
        if cascade or (word == "cancelled" and not nothing_new):
            self.propagate()
        return word

    def _cancel_array(self, job: Job, cascade: bool) -> str:
        job.cancel_requested_at = job.cancel_requested_at or self.now
        self._stop_array(job)
        self._settle()
        if cascade:
            self.propagate()
        self.work_on(job.id)
        return "cancelling"

    def retry(self, job_id: str, run: int | None = None) -> None:
        job = self._known(job_id, run)
        if job.status not in ("failed", "cancelled") or job.broken:
            raise Refused("Conflict")
        if holder := self.kept_off_by(self.head_of(job)):
            raise Refused("UniqueConflict", holder.id)
        self._run_anew(job)
        self._settle()
        self.propagate()
        if job.new.array:
            self.work_on(job_id)

    def _run_anew(self, job: Job) -> None:
        """Run a job once more, or the tasks of an array; a task when it is its turn."""
        self._resume(job)
        if job.task and self.arrays[job.task[0]].parallel is not None:
            self._wait_for_turn(*job.task)
            return
        self._start_anew(job)
        if job.new.array:
            self._retry_all(job.id)

    def delete(self, job_id: str) -> None:
        self.propagate()
        job = self._known(job_id)
        if not job.ended or self._is_needed(job):
            raise Refused("Conflict")
        self._forget(job)

    def _is_needed(self, job: Job) -> bool:
        workflow = self.workflows.get(job.workflow or "")
        if job.task or job.walked or (workflow and self.unfinished(workflow)):
            return True
        array = self.arrays.get(job.id)
        if array and (
            array.ended or array.turns or sum(self.tasks_counted(array)[status] for status in ENDED) < len(array.ids)
        ):
            return True
        followers = array.followers if array else []
        return any(one in self.jobs and not self.jobs[one].ended for one, _ in followers)

    def _forget(self, job: Job) -> None:
        """Jobs leave one by one, a workflow with its last one, a queue with its last one if nothing was set for it."""
        if array := self.arrays.pop(job.id, None):
            self.jobs = {name: one for name, one in self.jobs.items() if name not in array.ids}
        del self.jobs[job.id]
        if workflow := self.workflows.get(job.workflow or ""):
            workflow.gone[job.status] += 1
            if not any(one in self.jobs for one in workflow.jobs):
                del self.workflows[workflow.id]
        self._forget_if_empty(job.queue)

    def _forget_if_empty(self, name: str) -> None:
        queue = self.queues.get(name)
        used = any(job.queue == name for job in self.jobs.values()) or self.reserved_in(name)
        if queue and not queue.is_set and not used:
            del self.queues[name]

    def cancel_workflow(self, workflow: str) -> None:
        about = self.workflows.get(workflow)
        if about is None:
            raise Refused("NotFound")
        if about.stopped is None or about.stopped[0] != "cancelled":
            if not self.unfinished(about):
                raise Refused("Conflict")
            about.stopped = ("cancelled", "")
            self._go_on_stopping(about)
        self.propagate()

    def gate(self, name: str, change: Mapping[str, Any]) -> None:
        """Change what is set for a queue: `paused`, `max_running`, `max_pending`, `rate`."""
        queue = self.queues[name] = replace(self.queues.get(name, Queue()), **change)
        if queue.rate is None or "rate" in change:
            queue.starts.begin_anew(queue.rate)
        self._forget_if_empty(name)

    def purge(self, name: str) -> int:
        """Cancel what is ready to run in a queue."""
        lists = self.queues.get(name, Queue()).lists
        ids = [one for priority in lists for one in lists[priority]]
        for job_id in ids:
            job = self.jobs[job_id]
            job.cancel_requested_at = self.now
            self._end(job, "cancelled", reason="cancelled", error="cancelled: its queue was purged")
        self._settle()
        self.propagate()
        return len(ids)

    def act(self, verb: Verb, queue: str | None, to: tuple[str, int] | None = None) -> tuple[int, int]:
        """Do something with all jobs that can take it, of one queue or all; returns with how many it was done, and not.

        What has ended since it was ordered is left alone, also what it has itself run once more.
        """
        done = failed = 0
        began, self.now = self.now, self.now + 1
        for name, statuses in self._sources(verb, queue):
            jobs = [job for job in self.jobs.values() if job.status in statuses and name in (None, job.queue)]
            jobs = [job for job in jobs if not (verb is Verb.DELETE and job.task)]
            jobs = [job for job in jobs if not (verb is Verb.CANCEL and job.cancel_requested_at is not None)]
            jobs = [job for job in jobs if (job.queue, job.priority) != to and (job.finished_at or 0) <= began]
            for job in sorted(jobs, key=lambda job: (job.finished_at or 0 if job.ended else 0, job.id)):
                if job.status not in statuses or job.id not in self.jobs:
                    continue
                acted = self._act(verb, job, to)
                done, failed = done + acted, failed + (not acted)
            self._settle()
        return done, failed

    def _sources(self, verb: Verb, queue: str | None) -> list[tuple[str | None, list[str]]]:
        """What an action goes over, in order: ended jobs by queue and status, others all together."""
        statuses = [status.value for status in ACTS_ON[verb]]
        if all(status in ENDED for status in statuses):
            return [(name, [status]) for name in sorted(self.queues) if queue in (None, name) for status in statuses]
        return [(queue, statuses)]

    def _act(self, verb: Verb, job: Job, to: tuple[str, int] | None) -> bool:
        if verb is Verb.CANCEL and self.has_begun(job):
            job.cancel_requested_at = self.now
            self._stop_array(job)
        elif verb is Verb.CANCEL:
            self._cancel(job)
        elif verb is Verb.RETRY and not job.broken and not self.kept_off_by(self.head_of(job)):
            self._run_anew(job)
        elif verb is Verb.DELETE and not self._is_needed(job):
            self._forget(job)
        elif verb is Verb.MOVE and to and not (job.task or job.new.array):
            self._send(job, *to)
        else:
            return False
        return True

    def _send(self, job: Job, queue: str, priority: int) -> None:
        """Have a waiting job wait elsewhere, behind those that wait there."""
        listed = job.status == "pending" and job.new.concurrency is None
        if listed:
            self._list_of(job).remove(job.id)
        left, job.queue, job.priority = job.queue, queue, priority
        self.queues.setdefault(queue, Queue())
        if listed:
            self._list_of(job).append(job.id)
        elif job.status == "pending":
            self._tell_slots(job, "blocked", "pending")
        self._forget_if_empty(left)
