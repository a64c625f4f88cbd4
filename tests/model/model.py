"""The scheduler in plain Python: what callers can ask for, and what they are answered.

    state → transitions → graph → submitting → steering → model         read them in this order
    cron_lines → scheduling                                             schedules, which submit

No Redis, no time but what `now` says, nothing that can be lost: whatever is called is done, whole, at once. What is
left to chance or to the order in which a server looks at things, the model is told (`chosen`, `wait_ms`, `moves`), and
it checks that it may be so.

Not in it: arrays, parked claims, rates, output and progress, submissions of more than one call, retention, clocks that
are set.
"""

from collections.abc import Sequence
from typing import Any

from tests.model.scheduling import Book
from tests.model.state import ENDED, Job, Policy, Queue, must_stop
from tests.model.steering import Steering
from workron.models import Outcome, Reason

Held = tuple[str, int]


class Model(Steering):
    """A scheduler, with its workers and its reaper."""

    def __init__(self, policy: Policy, now: int) -> None:
        super().__init__(policy, now)
        self.requests: dict[str, tuple[str, list[Held], int]] = {}
        """Worker → its last claim request that got something, what that was, and until when it is known."""
        self.last_pass: int | None = None
        self.reap_after = 0
        self.book = Book(self)

    # --- attempts ---------------------------------------------------------------------------------

    def claim(
        self, worker: str, request: str, queues: Sequence[str], limit: int, floor: int, chosen: Sequence[str] = ()
    ) -> list[tuple[str, int, int]]:
        """Lease up to `limit` jobs to a worker: id, fence and attempt of each.

        A repeated request gets the same ones, one that was overtaken gets none. `chosen`: whom the store took, where
        several could have been the next one.
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
        """Record how an attempt ended, under its fence. `wait_ms`: how long the store has the next one wait."""
        job = self.jobs.get(job_id)
        if job is None or not self._running([(job_id, fence)]):
            answer = self._too_late(job, fence)
            self.propagate()
            return answer
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

    def _too_late(self, job: Job | None, fence: int) -> tuple[str, str | None]:
        if job is None:
            return "unknown", None
        if job.ended and job.fence == fence:
            return "recorded", job.status
        if job.earlier and job.earlier[0] == fence:
            return "recorded", job.earlier[1]
        return "lease_lost", job.status

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

    # --- the reaper -------------------------------------------------------------------------------

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
        """Take back what silent workers held: how many jobs go on, and have ended.

        Nobody is lost for one lease after a time in which nobody looked (None): workers could not be heard then.
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
