"""The scheduler in plain Python: what callers can ask for, and what they are answered.

    state → transitions → arrays → graph → tasks → submitting → staging → steering → parking → model
    cron_lines → scheduling                                             schedules, which submit

No Redis, no time but what `now` says, nothing that can be lost: whatever is called is done, whole, at once. What is
left to chance or to the order in which a server looks at things, the model is told (`chosen`, `wait_ms`, `moves`), and
it checks that it may be so. Of parked claims it is told, too, whom the store wakes (`hear_of`).

Not in it: output and progress, on which nothing else depends; retention; clocks that are set; restarts of the server;
arrays of more tasks than are made at once (1,000) or in one call (100), or in schedules; submissions of several calls
whose caller dies when they are open, or that were left unopened with unique keys or edges to other jobs.
"""

from typing import Any

from tests.model.parking import Parking
from tests.model.scheduling import Book
from tests.model.state import ENDED, Job, Policy, must_stop
from workron.models import Outcome, Reason


class Model(Parking):
    """A scheduler, with its workers and its reaper."""

    def __init__(self, policy: Policy, now: int) -> None:
        super().__init__(policy, now)
        self.last_pass: int | None = None
        self.pause: tuple[int, int] | None = None
        self.book = Book(self)

    # --- attempts ---------------------------------------------------------------------------------

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
        verdict = self._record(job_id, fence, outcome, wait_ms)
        self._settle()
        self.propagate()
        return verdict

    def _record(self, job_id: str, fence: int, outcome: Outcome, wait_ms: int | None) -> tuple[str, str | None]:
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
        before = [job for job in self.jobs.values() if not job.ended and not self.has_begun(job)]
        self._promote()
        if any(job.ended for job in before):
            self.propagate()

    def reap(self) -> tuple[int, int]:
        """Take back what silent workers held: how many jobs go on, and have ended.

        A time in which nobody looked does not count for a lease, once: workers could not be heard then.
        """
        last, self.last_pass = self.last_pass, self.now
        if last is not None and self.now - last > max(3 * self.policy.pass_ms, 3000):
            self.pause = (last, self.now)
        statuses = [self._look_at(job) for job in self._leases()]
        self._settle()
        ended = sum(status in ENDED for status in statuses)
        return sum(status == "pending" for status in statuses), ended

    def _leases(self) -> list[Job]:
        running = [job for job in self.jobs.values() if job.status == "running" and job.lease_until <= self.now]
        return sorted(running, key=lambda job: (job.lease_until, job.id))

    def _look_at(self, job: Job) -> str:
        stop = must_stop(job, self.policy.stop_ms)
        is_lost = bool(stop and self.now > stop[1]) or job.alive_until <= self.now
        if is_lost and (later := self._put_off_until(job.lease_until)) > self.now:
            job.lease_until = later
            return "running"
        job.losses += is_lost
        if stop and self.now > stop[1]:
            error = f"{stop[0]}: the worker did not stop the command in time"
            return self._conclude(job, {"reason": "timeout", "error": error})
        if job.alive_until <= self.now:
            error = f"worker lost: worker {job.worker} was silent for longer than its lease"
            return self._conclude(job, {"reason": "worker_lost", "error": error})
        job.lease_until = min(job.alive_until, stop[1] + 1) if stop else job.alive_until
        return "running"

    def _put_off_until(self, lease_until: float) -> float:
        """Return the end of a lease without the last time in which nobody looked; a half says that it was put off."""
        paused, resumed = self.pause or (0, 0)
        if lease_until % 1 or lease_until >= resumed + self.policy.lease_ms:
            return 0
        later = min(max(lease_until, paused) + resumed - paused, resumed + self.policy.lease_ms)
        return later + 0.5 if later > self.now else 0
