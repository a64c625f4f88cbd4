"""The model's rules for jobs that depend on each other: dependencies, cascades, workflows.

What a job's end means for others waits in `walks` until somebody calls `propagate`; what all that have ended mean for
their workflows is settled at the end of each call, by `_settle`.
"""

from collections import Counter

from tests.model.arrays import Arrays
from tests.model.state import GONE, WAITING, Job, Workflow, counted
from workron.models import When


class Graph(Arrays):
    """All that is stored, with the rules between jobs."""

    # --- dependencies -----------------------------------------------------------------------------

    def _edge(self, parent: Job, when: str) -> str | None:
        """What stands open of an edge: nothing when it is satisfied, `when` while it can be, `!when` when it can't."""
        if not parent.ended:
            return when
        return None if when in (When.FINISHED, parent.status) else f"!{when}"

    def _skip(self, job: Job, parent: Job) -> None:
        error = f"skipped: it depends on {parent.id}, which ended {parent.status}"
        self._end(job, "skipped", reason="upstream", error=error, caused_by=parent.id)

    def _visit(self, parent: Job, when: str, child: Job | None) -> None:
        """Bring an edge, and then the child, to what the parent's present status demands."""
        if child is None or child.status not in ("blocked", "skipped", *GONE):
            return
        was, now = child.open.get(parent.id), self._edge(parent, when)
        if was == now or (was is None and (child.status in GONE or self.has_begun(child))):
            return
        broken = len(child.broken)
        if now is None:
            del child.open[parent.id]
        else:
            child.open[parent.id] = now
        if child.status == "blocked" and child.broken:
            self._skip(child, parent)
        elif len(child.broken) != broken and child.caused_by not in child.broken:
            child.caused_by = child.broken[0] if child.broken else None
        if child.status == "skipped" and not child.broken:
            self._rearm(child)
        if child.status == "blocked" and not child.open and not child.new.final:
            self._move(child, self._ready(child))

    def _rearm(self, job: Job) -> None:
        """Have a skipped job wait anew. Nobody has named it: it must not take a unique key from others."""
        job.run += 1
        job.finished_at = job.reason = job.error = job.caused_by = None
        self._move(job, "blocked", asked=False)
        self._to_visit(job)

    def propagate(self) -> None:
        """Tell dependents of all that has ended, or runs anew; go on with cascades and stops."""
        while self.walks:
            kind, of = self.walks[0]
            parent = self.jobs.get(of)
            if parent and parent.cascading and (kind == "follow" or (kind == "edges" and parent.status == "cancelled")):
                self._cascade(parent)  # first: else it would skip what is to be cancelled
                self.walks.rotate(-1)
                continue
            if kind == "edges" and parent and parent.to_visit:
                for when, child in parent.children:
                    self._visit(parent, when, self.jobs.get(child))
                parent.to_visit = False
            elif kind == "cascade" and parent and parent.cascading:
                self._cascade(parent)
            elif kind == "follow" and of in self.arrays:
                self.tell_followers(of)
            elif kind == "stop":
                self._stop_all(self.workflows.get(of))
            self.walks.popleft()
        self._settle()

    def _cascade(self, parent: Job) -> None:
        followers = self.arrays[parent.id].followers if parent.new.array else []
        for child in [*(child for _, child in parent.children), *(follower for follower, _ in followers)]:
            self._cascade_to(self.jobs.get(child), parent)
        parent.cascading = False

    def _push_cascade(self, job: Job, token: int) -> None:
        if not job.cascading:
            self.walks.append(("cascade", job.id))
        job.cascade, job.cascading = token, True

    def _cascade_to(self, job: Job | None, parent: Job) -> None:
        if job is None or job.cascade >= parent.cascade:
            return
        if job.children or job.new.array:
            self._push_cascade(job, parent.cascade)
        self._cancel_any(job, f"cancelled with {parent.id}, on which it depends", parent.id)

    def _cancel_any(self, job: Job, error: str, caused_by: str | None = None) -> None:
        if self.has_begun(job):
            if not job.ended and job.cancel_requested_at is None:
                job.cancel_requested_at = self.now
                self._stop_array(job)
        elif not job.ended and (job.status != "running" or job.cancel_requested_at is None):
            self._cancel(job, error, caused_by)

    # --- workflows --------------------------------------------------------------------------------

    def counts(self, workflow: Workflow) -> Counter[str]:
        return counted([self.jobs[one] for one in workflow.jobs if one in self.jobs]) + workflow.gone

    def unfinished(self, workflow: Workflow, *, beside: str | None = None) -> int:
        """How many of its jobs have not ended, one of them passed over."""
        jobs = [self.jobs[one] for one in workflow.jobs if one in self.jobs and one != beside]
        return sum(not job.ended for job in jobs)

    def _stop_all(self, workflow: Workflow | None) -> None:
        """Cancel the jobs of a stopped workflow: those that run if somebody has cancelled it, the final job never."""
        if workflow is None or workflow.stopped is None or workflow.stop_at is None:
            return
        how, cause = workflow.stopped
        for job in [self.jobs[one] for one in workflow.jobs if one in self.jobs and one != workflow.final]:
            if how == "cancelled":
                self._cancel_any(job, "cancelled with its workflow")
            elif job.status != "running" and not self.has_begun(job):
                self._cancel_any(job, f"cancelled: {cause} has failed, which stops the workflow", cause)
        workflow.stop_at = None

    def _settle(self) -> None:
        """Start a final job when all others have ended; have it run once more when one of them does."""
        while self._stirred or self.touched:
            if self.touched:
                self._settle_arrays()
                continue
            stirred, self._stirred = self._stirred, {}
            for name, what in stirred.items():
                workflow = self.workflows.get(name)
                final = self.jobs.get(workflow.final or "") if workflow else None
                if workflow is None or final is None:
                    continue
                others = self.unfinished(workflow, beside=final.id)
                if final.status == "blocked" and not others:
                    self._move(final, self._ready(final))
                    self.finals.append(final.id)
                elif what == "again" and others and final.ended and final.status != "cancelled":
                    self._start_anew(final, asked=False)
        for key in [key for key in self.slots if all(job.ended for job in self._of_key(key))]:
            del self.slots[key]

    def _waiting_in(self, queue: str) -> int:
        waiting = sum(job.queue == queue and job.status in WAITING for job in self.jobs.values())
        return waiting + self.reserved_in(queue)
