"""The scheduler in plain Python: what callers can ask for, and what they are answered. The rules behind it: `transitions`.

No Redis, no time but what `now` says, nothing that can be lost: whatever is called is done, whole, at once. What is left to
chance or to the order in which a server looks at things, the model is told (`chosen`), and it checks that it may be so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.model.state import ENDED, Job, Policy, Queue, Refused, Workflow, must_stop
from tests.model.transitions import Transitions
from workron.models import NewJob, OnConflict, OnFailure, Outcome, Reason
from workron.models.actions import ACTS_ON, Verb

Held = tuple[str, int]
IDEMPOTENCY_MS = 24 * 3600 * 1000


class Model(Transitions):
    """A scheduler."""

    def __init__(self, policy: Policy, now: int) -> None:
        super().__init__(policy, now)
        self.requests: dict[str, tuple[str, list[Held], int]] = {}
        """Worker → its last claim request that got something, what that was, and until when it is known."""
        self.submissions: dict[str, tuple[tuple[str, ...], int]] = {}
        """Idempotency-Key → what its submission was answered, and until when it is known."""
        self.returned: dict[str, tuple[dict[str, str], int]] = {}
        """First id of a submission → those of its jobs that were not stored, and who holds their unique keys."""
        self.last_pass: int | None = None
        self.reap_after = 0

    # --- submitting -----------------------------------------------------------------------------------------------------

    def submit(
        self,
        jobs: Sequence[NewJob],
        *,
        workflow: str | None = None,
        on_failure: OnFailure = OnFailure.CONTINUE,
        add: bool = False,
        key: str | None = None,
    ) -> tuple[str, ...]:
        """Store jobs, all or none; returns their ids, those of others in place of jobs that are not stored."""
        self.finals = []
        if add and workflow not in self.workflows:
            raise Refused("NotFound")
        earlier, until = self.submissions.get(key or "", ((), 0))
        if earlier and until > self.now:
            return earlier
        instead, until = self.returned.get(jobs[0].id, ({}, 0))
        if any(job.id in self.jobs for job in jobs) or (instead and until > self.now and len(jobs) > 1):
            return tuple(instead.get(job.id, job.id) for job in jobs)
        kept, instead, replaced = self._meet_holders(jobs, workflow)
        answer = tuple(instead.get(job.id, job.id) for job in jobs)
        if kept:
            self._refuse(kept, [self.jobs[one] for one in replaced], workflow if add else None)
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
        if replaced:
            self.propagate()
        return answer

    def _meet_holders(
        self, jobs: Sequence[NewJob], workflow: str | None
    ) -> tuple[list[NewJob], dict[str, str], dict[str, str]]:
        """What becomes of jobs whose unique key another one holds: those kept, those returned, and whom they replace."""
        kept, instead, replaced = list(jobs), {}, {}
        for job in [job for job in jobs if job.unique]:
            assert job.unique
            other = self._holder(job.unique.key)
            if other is None:
                continue
            if job.unique.on_conflict is OnConflict.RETURN and workflow is None:
                instead[job.id] = other.id
                kept.remove(job)
            elif job.unique.on_conflict is OnConflict.REPLACE and other.status != "running":
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
        for queue in {job.queue for job in jobs}:
            more = sum(job.queue == queue for job in jobs) - sum(job.queue == queue for job in replaced)
            most = self.queues.get(queue, Queue()).max_pending
            if most is not None and more > 0 and self._waiting_in(queue) + more > most:
                raise Refused("QueueFull")
        known = {*self.jobs, *(job.id for job in jobs)}
        if any(edge.job not in known for job in jobs for edge in job.depends_on):
            raise Refused("UnknownDependency")

    def _store(self, jobs: Sequence[NewJob], workflow: str | None, on_failure: OnFailure, add: bool) -> None:
        if workflow and add:
            self.workflows[workflow].jobs += [job.id for job in jobs]
        elif workflow:
            has_hands = on_failure is OnFailure.STOP or any(job.final for job in jobs)
            ids = [job.id for job in jobs]
            self.workflows[workflow] = Workflow(workflow, self.now, ids, on_failure, has_hands)
        for new in jobs:
            job = Job(new, self.now, new.queue, new.priority, workflow)
            job.run_at = self.now + new.delay_ms if new.delay_ms is not None else new.run_at_ms
            self.jobs[job.id] = job
            self.queues.setdefault(job.queue, Queue())
            for edge in new.depends_on:
                parent = self.jobs[edge.job]
                parent.children.append((edge.when, job.id))
                if state := self._edge(parent, edge.when):
                    job.open[edge.job] = state
            if job.broken:
                self._move(job, "blocked")
                self._skip(job, self.jobs[job.broken[-1]])
            else:
                self._move(job, "blocked" if job.open else self._ready(job))

    # --- attempts -------------------------------------------------------------------------------------------------------

    def claim(
        self, worker: str, request: str, queues: Sequence[str], limit: int, floor: int, chosen: Sequence[str] = ()
    ) -> list[tuple[str, int, int]]:
        """Lease up to `limit` jobs to a worker: id, fence and attempt of each. A repeated request gets the same ones, one
        that was overtaken gets none. `chosen`: whom the store took, where several could have been the next one.
        """
        last, held, until = self.requests.get(worker, ("", [], 0))
        if last and until > self.now:
            if last == request:
                return [(job.id, fence, job.attempts) for job, fence in self._running(held)]
            if int(request.partition(":")[2]) < int(last.partition(":")[2]):
                return []
        self._promote()
        claims: list[tuple[str, int, int]] = []
        self.fence = max(self.fence, self.now - 1, floor) if self._next(queues, limit, []) else self.fence
        while (job := self._next(queues, limit - len(claims), chosen[len(claims) :])) is not None:
            self._start(job, worker)
            claims.append((job.id, self.fence, job.attempts))
        if claims:
            held = [(job_id, fence) for job_id, fence, _ in claims]
            self.requests[worker] = (request, held, self.now + 2 * self.policy.lease_ms)
        self._settle()
        return claims

    def _start(self, job: Job, worker: str) -> None:
        self.fence += 1
        job.attempts, job.fence, job.worker = job.attempts + 1, self.fence, worker
        job.started_at = job.beat_at = self.now
        job.lease_until = job.alive_until = self.now + self.policy.lease_ms
        self._move(job, "running")

    def _running(self, held: Sequence[Held]) -> list[tuple[Job, int]]:
        pairs = [(self.jobs.get(job_id), fence) for job_id, fence in held]
        return [(job, fence) for job, fence in pairs if job and job.status == "running" and job.fence == fence]

    def _next(self, queues: Sequence[str], limit: int, chosen: Sequence[str]) -> Job | None:
        """The next job to start: of the first queue that has some, of the highest priority that has some."""
        for name in queues if limit > 0 else ():
            queue = self.queues.get(name, Queue())
            running = sum(job.queue == name and job.status == "running" for job in self.jobs.values())
            if queue.paused or (queue.max_running is not None and running >= queue.max_running):
                continue
            for priority in range(9, 0, -1):
                if next_ones := queue.lists[priority][:1] + self._next_of_keys(name, priority):
                    return self.jobs[chosen[0] if chosen and chosen[0] in next_ones else next_ones[0]]
        return None

    def _next_of_keys(self, queue: str, priority: int) -> list[str]:
        """Of each concurrency key that has a free slot, the first one in line."""
        found: list[str] = []
        for key in self.slots:
            line = [job for job in self._of_key(key) if job.status == "pending" and job.queue == queue]
            line = [job for job in line if job.priority == priority]
            if line and self._free_slots(key) > 0:
                found.append(min(line, key=lambda job: job.place).id)
        return found

    def heartbeat(self, job_id: str, fence: int) -> str:
        """Renew a lease. Who has not stopped a command that had to end has lost it, whoever beats."""
        for job, _ in self._running([(job_id, fence)]):
            stop = must_stop(job, self.policy.stop_ms)
            if stop and self.now > stop[1]:
                return "lost"
            job.beat_at, job.alive_until = self.now, self.now + self.policy.lease_ms
            job.lease_until = min(job.alive_until, stop[1] + 1) if stop else job.alive_until
            return "ok" if job.cancel_requested_at is None and job.expired_at is None else "cancel"
        return "lost"

    def finish(self, job_id: str, fence: int, outcome: Outcome, wait_ms: int | None = None) -> tuple[str, str | None]:
        """Record how an attempt ended, under its fence. `wait_ms`: what was left to chance of the wait before the next one."""
        job = self.jobs.get(job_id)
        if job is None:
            return "unknown", None
        if not self._running([(job_id, fence)]):
            if job.ended and job.fence == fence:
                return "recorded", job.status
            return (
                ("recorded", job.earlier[1]) if job.earlier and job.earlier[0] == fence else ("lease_lost", job.status)
            )
        least, most, final = self._wait_after(job, outcome)
        status = self._conclude(
            job, self._told(outcome, fence) | {"final": final}, most if wait_ms is None else wait_ms
        )
        if status == "scheduled":
            assert wait_ms is not None
            assert least <= wait_ms <= most, f"{job_id} waits {wait_ms} ms, not {least} to {most}"
        self._settle()
        self.propagate()
        return "accepted", status

    def _told(self, outcome: Outcome, fence: int) -> dict[str, Any]:
        said = {name: getattr(outcome, name) for name in ("reason", "exit_code", "signal", "error", "result")}
        return said | {"exit_code": 0 if outcome.reason is None else outcome.exit_code, "fence": fence}

    def _wait_after(self, job: Job, outcome: Outcome) -> tuple[int, int, bool]:
        """The shortest and longest wait before another attempt, and whether there is none because of the exit code."""
        new, code = job.new, outcome.exit_code
        asked, final = outcome.retry_after_ms, False
        if outcome.reason is Reason.EXIT_CODE and code is not None:
            unwanted = bool(new.retry_on_exit) and asked is None and code not in new.retry_on_exit
            final = code in new.no_retry_on_exit or unwanted
        said = new.retry
        delay = said.delay_ms if said and said.delay_ms is not None else self.policy.retry_ms
        longest = said.max_delay_ms if said else None
        if asked is not None:
            wait = min(asked, self.policy.retry_max_ms if longest is None else longest)
            return wait, wait, final
        factor = said.factor if said and said.factor is not None else 2
        jitter = said.jitter if said and said.jitter is not None else 0.5
        longest = max(self.policy.retry_max_ms, delay) if longest is None else longest
        full = min(delay * factor ** (job.attempts - 1), longest)
        return int(full * (1 - jitter)), int(full), final

    def release(self, job_id: str, fence: int) -> str | None:
        for job, _ in self._running([(job_id, fence)]):
            status = self._give_back(job, fence)
            self._settle()
            return status
        return None

    # --- steering -------------------------------------------------------------------------------------------------------

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
        if cascade and job.children:
            self._push_cascade(job, max(self.now, job.cascade))
        word = "cancelled" if job.ended else self._cancel(job)
        self._settle()
        if cascade or word == "cancelled":
            self.propagate()
        return word

    def retry(self, job_id: str, run: int | None = None) -> None:
        job = self._known(job_id, run)
        if job.status not in ("failed", "cancelled") or job.broken:
            raise Refused("Conflict")
        if holder := self._kept_off_by(job):
            raise Refused("UniqueConflict", holder.id)
        self._run_anew(job)
        self._settle()
        self.propagate()

    def _kept_off_by(self, job: Job) -> Job | None:
        return self._holder(job.new.unique.key) if job.new.unique else None

    def _run_anew(self, job: Job) -> None:
        self._resume(job)
        self._start_anew(job)

    def delete(self, job_id: str) -> None:
        self.propagate()
        job = self._known(job_id)
        if not job.ended or self._is_needed(job):
            raise Refused("Conflict")
        self._forget(job)

    def _is_needed(self, job: Job) -> bool:
        workflow = self.workflows.get(job.workflow or "")
        return job.walked or bool(workflow and self.unfinished(workflow))

    def _forget(self, job: Job) -> None:
        """Jobs leave one by one, a workflow with its last one, a queue with its last one if nothing was set for it."""
        del self.jobs[job.id]
        if workflow := self.workflows.get(job.workflow or ""):
            workflow.gone[job.status] += 1
            if not any(one in self.jobs for one in workflow.jobs):
                del self.workflows[workflow.id]
        self._forget_if_empty(job.queue)

    def _forget_if_empty(self, name: str) -> None:
        queue = self.queues.get(name)
        if queue and not queue.is_set and not any(job.queue == name for job in self.jobs.values()):
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
        """Change what is set for a queue: `paused`, `max_running`, `max_pending`."""
        queue = self.queues.get(name, Queue())
        self.queues[name] = replace(queue, **change)
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
            jobs = [job for job in jobs if not (verb is Verb.CANCEL and job.cancel_requested_at is not None)]
            jobs = [job for job in jobs if (job.queue, job.priority) != to and (job.finished_at or 0) <= began]
            for job in sorted(jobs, key=lambda job: (job.finished_at or 0 if job.ended else 0, job.id)):
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
        if verb is Verb.CANCEL:
            self._cancel(job)
        elif verb is Verb.RETRY and not job.broken and not self._kept_off_by(job):
            self._run_anew(job)
        elif verb is Verb.DELETE and not self._is_needed(job):
            self._forget(job)
        elif verb is Verb.MOVE and to:
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

    # --- the reaper -----------------------------------------------------------------------------------------------------

    def _promote(self) -> None:
        """Make due jobs pending, and act on timers that have come, in the order of their times."""
        due: list[tuple[int, str, str, Job]] = []
        for job in self.jobs.values():
            if job.status == "scheduled":
                due.append((job.run_at or 0, job.id, "", job))
            if job.deadline_at is not None and job.expired_at is None and not job.ended:
                due.append((job.deadline_at, f"deadline {job.id}", "deadline", job))
            if job.expires_at is not None and not job.ended and job.status != "running" and not job.attempts:
                due.append((job.expires_at, f"expires {job.id}", "expires", job))
        for _, _, timer, job in sorted(one for one in due if one[0] <= self.now):
            if timer:
                self._expire(timer, job)
            elif job.status == "scheduled":
                self._move(job, "pending")
        self._settle()

    def promote(self) -> None:
        before = [job for job in self.jobs.values() if not job.ended]
        self._promote()
        if any(job.ended for job in before):
            self.propagate()

    def reap(self) -> tuple[int, int] | None:
        """Take back what silent workers held: how many jobs go on, and have ended. Nobody is lost for one lease after a time in
        which nobody looked (None): then workers could not be heard either.
        """
        last, self.last_pass = self.last_pass, self.now
        if last is not None and self.now - last > max(3 * self.policy.pass_ms, 3000):
            self.reap_after = self.now + self.policy.lease_ms
        if self.reap_after > self.now:
            return None
        statuses = [self._look_at(job) for job in self._leases()]
        self._settle()
        ended = sum(status in ENDED for status in statuses)
        return sum(status == "pending" for status in statuses), ended

    def _leases(self) -> list[Job]:
        running = [job for job in self.jobs.values() if job.status == "running" and job.lease_until <= self.now]
        return sorted(running, key=lambda job: (job.lease_until, job.id))

    def _look_at(self, job: Job) -> str:
        stop = must_stop(job, self.policy.stop_ms)
        if stop and self.now > stop[1]:
            error = f"{stop[0]}: the worker did not stop the command in time"
            return self._conclude(job, {"reason": "timeout", "error": error})
        if job.alive_until <= self.now:
            error = f"worker lost: worker {job.worker} was silent for longer than its lease"
            return self._conclude(job, {"reason": "worker_lost", "error": error})
        job.lease_until = min(job.alive_until, stop[1] + 1) if stop else job.alive_until
        return "running"
