"""The model: submissions, and why they are refused."""

from collections.abc import Sequence

from tests.model.state import Job, Policy, Queue, Refused, Workflow
from tests.model.tasks import Tasks
from workron.models import Dependency, NewJob, OnConflict, OnFailure

IDEMPOTENCY_MS = 24 * 3600 * 1000


def room_of(job: NewJob) -> int:
    return 1 + job.array.size if job.array else 1


def plain(edges: Sequence[Dependency]) -> list[Dependency]:
    return [edge for edge in edges if not edge.matching]


class Submissions(Tasks):
    """A scheduler that takes jobs."""

    def __init__(self, policy: Policy, now: int) -> None:
        super().__init__(policy, now)
        self.submissions: dict[str, tuple[tuple[str, ...], int]] = {}
        """Idempotency-Key → what its submission was answered, and until when it is known."""
        self.returned: dict[str, tuple[dict[str, str], int]] = {}
        """First id of a submission → those of its jobs that were not stored, and who holds their unique keys."""
        self.replaced_any = False
        """Whether a submission has replaced jobs whose dependents are not told yet."""

    def submit(
        self,
        jobs: Sequence[NewJob],
        *,
        workflow: str | None = None,
        on_failure: OnFailure = OnFailure.CONTINUE,
        add: bool = False,
        key: str | None = None,
        alone: bool = True,
    ) -> tuple[str, ...]:
        """Store jobs, all or none; returns their ids, those of others in place of jobs that are not stored.

        `alone`: else other submissions come with the same call, and dependents are told at its end.
        """
        self.finals = []
        if add and workflow not in self.workflows:
            raise Refused("NotFound")
        self._check_arrays(jobs)
        earlier, until = self.submissions.get(key or "", ((), 0))
        if earlier and until > self.now:
            return earlier
        answer = self._submit(jobs, workflow, on_failure, add, key)
        if not answer:
            return ()
        if alone:
            self.tell_dependents()
        self._work_on_all(jobs)
        return answer

    def _work_on_all(self, jobs: Sequence[NewJob]) -> None:
        for job in jobs:
            if job.array:
                self.work_on(job.id)

    def _submit(
        self, jobs: Sequence[NewJob], workflow: str | None, on_failure: OnFailure, add: bool, key: str | None
    ) -> tuple[str, ...]:
        instead, until = self.returned.get(jobs[0].id, ({}, 0))
        if any(job.id in self.jobs for job in jobs) or (instead and until > self.now and len(jobs) > 1):
            return tuple(instead.get(job.id, job.id) for job in jobs)
        kept, instead, replaced = self._meet_holders(jobs, workflow)
        answer = tuple(instead.get(job.id, job.id) for job in jobs)
        if kept:
            self._refuse(kept, [self.jobs[one] for one in replaced], workflow if add else None)
            if self.dies and any(job.array and job.array.values for job in kept):
                return ()  # the call that got no answer has asked for the values
            self._store(kept, workflow, on_failure, add)
            for other, by in replaced.items():
                self._cancel(self.jobs[other], f"replaced by job {by}")
            for job in kept:
                if job.unique and self.jobs[job.id].status != "skipped":
                    self._take_key(self.jobs[job.id])
        if instead and len(jobs) > 1:
            self.returned[jobs[0].id] = (instead, self.now + (IDEMPOTENCY_MS if key else 600_000))
        if key:
            self.submissions[key] = (answer, self.now + IDEMPOTENCY_MS)
        self._settle()
        self.replaced_any = bool(replaced) or self.replaced_any
        return answer

    def tell_dependents(self) -> None:
        if self.replaced_any:
            self.replaced_any = False
            self.propagate()

    def _check_arrays(self, jobs: Sequence[NewJob]) -> None:
        """Only an array can follow another array, of its size."""
        arrays = {name: job.new.array for name, job in self.jobs.items()} | {job.id: job.array for job in jobs}
        for job in jobs:
            for edge in [edge for edge in job.depends_on if edge.matching]:
                if edge.job not in arrays:
                    raise Refused("UnknownDependency")
                followed = arrays[edge.job]
                if job.array is None or followed is None or followed.size != job.array.size:
                    raise Refused("InvalidRequest")

    def _meet_holders(
        self, jobs: Sequence[NewJob], workflow: str | None
    ) -> tuple[list[NewJob], dict[str, str], dict[str, str]]:
        """What becomes of jobs whose unique key is held: those kept, those returned, and whom they replace."""
        kept, instead, replaced = list(jobs), {}, {}
        for job in [job for job in jobs if job.unique]:
            assert job.unique
            other = self._holder(job.unique.key)
            if other is None:
                continue
            if job.unique.on_conflict is OnConflict.RETURN and workflow is None:
                instead[job.id] = other.id
                kept.remove(job)
            elif (
                job.unique.on_conflict is OnConflict.REPLACE and other.status != "running" and not self.has_begun(other)
            ):
                replaced[other.id] = job.id
            else:
                raise Refused("UniqueConflict", other.id)
        return kept, instead, replaced

    def _refuse(self, jobs: Sequence[NewJob], replaced: Sequence[Job], workflow: str | None) -> None:
        """Nothing is stored where a workflow has ended, a queue is full, or a dependency is unknown."""
        if workflow is not None:
            about = self.workflows[workflow]
            final = self.jobs.get(about.final or "")
            begun = final is not None and final.status not in ("blocked", "cancelled")
            if about.stopped or not self.unfinished(about) or begun:
                raise Refused("Conflict")
        self._refuse_room(jobs, replaced)
        known = {*self.jobs, *(job.id for job in jobs)}
        if any(edge.job not in known for job in jobs for edge in job.depends_on):
            raise Refused("UnknownDependency")

    def _refuse_room(self, jobs: Sequence[NewJob], replaced: Sequence[Job]) -> None:
        for queue in {job.queue for job in jobs}:
            more = sum(room_of(job) for job in jobs if job.queue == queue)
            more -= sum(room_of(job.new) for job in replaced if job.queue == queue)
            most = self.queues.get(queue, Queue()).max_pending
            if most is not None and more > 0 and self._waiting_in(queue) + more > most:
                raise Refused("QueueFull")

    def _store(self, jobs: Sequence[NewJob], workflow: str | None, on_failure: OnFailure, add: bool) -> None:
        if workflow and add:
            self.workflows[workflow].jobs += [job.id for job in jobs]
        elif workflow:
            has_hands = on_failure is OnFailure.STOP or any(job.final for job in jobs)
            ids = [job.id for job in jobs]
            self.workflows[workflow] = Workflow(workflow, self.now, ids, on_failure, has_hands)
        stored = [self._put(new, workflow, self.now) for new in jobs]
        for job in stored:
            self._note_edges(job)
            self._enter(job)

    def _note_edges(self, job: Job) -> None:
        for edge in plain(job.new.depends_on):
            if state := self._edge(self.jobs[edge.job], edge.when):
                job.open[edge.job] = state

    def _enter(self, job: Job) -> None:
        if job.broken:
            self._move(job, "blocked")
            self._skip(job, self.jobs[job.broken[-1]])
        else:
            self._move(job, "blocked" if job.open else self._ready(job))

    def _put(self, new: NewJob, workflow: str | None, made_at: int) -> Job:
        """Store a job and its edges: all of a submission, before any of them is where it belongs."""
        job = Job(new, made_at, new.queue, new.priority, workflow)
        job.run_at = made_at + new.delay_ms if new.delay_ms is not None else new.run_at_ms
        self.jobs[job.id] = job
        self.queues.setdefault(job.queue, Queue())
        for edge in plain(new.depends_on):
            self.jobs[edge.job].children.append((edge.when, job.id))
        return job
