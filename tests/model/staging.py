"""The model: submissions of more than one call. They are staged in chunks, unseen, then opened and admitted."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.model.state import Policy, Refused, Workflow
from tests.model.submitting import IDEMPOTENCY_MS, Submissions, plain, room_of
from workron.models import NewJob, OnConflict, OnFailure

ABANDONED_MS = 60_000
CLOSED_MS = 3_600_000


@dataclass
class Batch:
    """A submission of which chunks are stored and that is not open: it has its room, and nobody sees it."""

    jobs: Sequence[NewJob]
    made_at: int
    last_call: int


class Staging(Submissions):
    """A scheduler that takes large submissions. What is left unopened here names no unique keys, and no other jobs."""

    def __init__(self, policy: Policy, now: int) -> None:
        super().__init__(policy, now)
        self.staged: dict[str, Batch] = {}
        """First id → what was not opened yet."""
        self.closed: dict[str, int] = {}
        """First id → until when it is known that it was given up."""

    def reserved_in(self, queue: str) -> int:
        jobs = [job for batch in self.staged.values() for job in batch.jobs if job.queue == queue]
        return super().reserved_in(queue) + sum(room_of(job) for job in jobs)

    def stage(
        self,
        jobs: Sequence[NewJob],
        at_once: int,
        *,
        workflow: str | None = None,
        on_failure: OnFailure = OnFailure.CONTINUE,
        key: str | None = None,
        opens: bool = True,
    ) -> tuple[str, ...]:
        """Store jobs in calls of `at_once`; returns their ids. `opens`: else its caller dies before it does."""
        self.finals = []
        self._check_arrays(jobs)
        first = jobs[0].id
        known = {*self.jobs, *(job.id for job in jobs)}
        if any(edge.job not in known for job in jobs for edge in plain(job.depends_on)):
            raise Refused("UnknownDependency")
        earlier, until = self.submissions.get(key or "", ((), 0))
        if earlier and until > self.now:
            return earlier
        instead, until = self.returned.get(first, ({}, 0))
        if first in self.jobs or (instead and until > self.now):
            self._work_on_all(jobs)
            return tuple(instead.get(job.id, job.id) for job in jobs)
        if self.closed.get(first, 0) > self.now:
            self.closed[first] = self.now + CLOSED_MS
            raise Refused("GivenUp")
        if first not in self.staged:
            self._refuse_room(jobs, [])
        chunks = [jobs[start : start + at_once] for start in range(0, len(jobs), at_once)]
        self._returned_for(chunks[:1], workflow)
        try:
            instead = self._returned_for(chunks[:1] if self.dies else chunks, workflow)
        except Refused:  # the first chunk is stored by then
            self._store_and_give_up(jobs)
            raise
        if self.dies:  # with the reply to the first chunk
            self._store_and_give_up(jobs)
            return ()
        if not opens:
            made_at = self.staged[first].made_at if first in self.staged else self.now
            self.staged[first] = Batch(jobs, made_at, self.now)
            return ()
        kept = [[job for job in chunk if job.id not in instead] for chunk in chunks]
        self._open(kept, workflow, on_failure, first)
        answer = tuple(instead.get(job.id, job.id) for job in jobs)
        if instead:
            self.returned[first] = (instead, self.now + (IDEMPOTENCY_MS if key else 600_000))
        if key:
            self.submissions[key] = (answer, self.now + IDEMPOTENCY_MS)
        self._work_on_all(jobs)
        return answer

    def _returned_for(self, chunks: Sequence[Sequence[NewJob]], workflow: str | None) -> dict[str, str]:
        """Nobody is replaced before it is certain that the submission will be there."""
        instead: dict[str, str] = {}
        for chunk in chunks:
            for job in chunk:
                other = self._holder(job.unique.key) if job.unique else None
                if other and job.unique and job.unique.on_conflict is OnConflict.RETURN and workflow is None:
                    instead[job.id] = other.id
                elif other:
                    raise Refused("UniqueConflict", other.id)
            if any(edge.job in instead for job in chunk if job.id not in instead for edge in job.depends_on):
                raise Refused("UnknownDependency")
        return instead

    def _open(self, kept: Sequence[Sequence[NewJob]], workflow: str | None, on_failure: OnFailure, first: str) -> None:
        batch = self.staged.pop(first, None)
        made_at = batch.made_at if batch else self.now
        if workflow:
            all_kept = [job for chunk in kept for job in chunk]
            has_hands = on_failure is OnFailure.STOP or any(job.final for job in all_kept)
            self.workflows[workflow] = Workflow(workflow, made_at, [job.id for job in all_kept], on_failure, has_hands)
        stored = [[self._put(new, workflow, made_at) for new in chunk] for chunk in kept]
        for job in [job for chunk in stored for job in chunk]:
            self._note_edges(job)
            if job.new.unique and not job.broken:
                self._take_key(job)
        for chunk in stored:
            for job in chunk:
                self._enter(job)
            self._settle()

    def tidy(self) -> None:
        """Go on with arrays, and give up what nobody goes on with."""
        super().tidy()
        for first, batch in list(self.staged.items()):
            if self.now - batch.last_call >= ABANDONED_MS:
                self.give_up(first)

    def _store_and_give_up(self, jobs: Sequence[NewJob]) -> None:
        self.staged[jobs[0].id] = Batch(jobs, self.now, self.now)
        self.give_up(jobs[0].id)

    def give_up(self, first: str) -> None:
        batch = self.staged.pop(first)
        self.closed[first] = self.now + CLOSED_MS
        for queue in {job.queue for job in batch.jobs}:
            self._forget_if_empty(queue)
