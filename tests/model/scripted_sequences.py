"""Calls in an order that chance alone would hardly ever make: how faults of leases, limits and walks become visible."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.model.driver import LOST, PICK
from tests.model.operator_rules import SteeringRules
from tests.model.reaper_rules import ReaperRules
from tests.model.specs import FAILURES
from tests.model.submit_rules import SubmitRules
from tests.model.worker_rules import TOO_LATE, WorkerRules
from workron.models import Outcome


class Courses(SubmitRules, WorkerRules, SteeringRules, ReaperRules):
    """What happens to jobs one thing after the other."""

    def _running_one(self, which: int, limit: int = 5) -> tuple[str, int] | None:
        self.claim(["default", "other"], limit, "c", False)
        running = self.running()
        return self.pick(running, which) if running else None

    @rule(which=PICK, failure=st.sampled_from([None, *FAILURES]), lost=LOST)
    def work(self, which: int, failure: Outcome | None, lost: bool) -> None:
        """A job is run, whatever its end."""
        if one := self._running_one(which):
            self.end(*one, failure or Outcome(None, exit_code=0), lost)

    @rule(which=PICK, how=TOO_LATE)
    def be_overtaken(self, which: int, how: str) -> None:
        """An attempt gives its job back, another one starts it, and the first has its say after all."""
        if one := self._running_one(which):
            self.give_back(*one, False)
            self.claim(["default", "other"], 5, "c", False)
            self.speak(*one, how)

    @rule(which=PICK, silent=st.sampled_from([1, 2, 3]))
    def beat_once(self, which: int, silent: int) -> None:
        """A worker beats in the middle of its lease, and no more after that."""
        if one := self._running_one(which):
            self.reap()
            self.pass_time(1)
            self.beat(*one)
            self.pass_time(silent)
            self.reap()

    @rule(which=PICK, minutes=st.sampled_from([1, 5]))
    def end_late(self, which: int, minutes: int) -> None:
        """A job is done a while after it was started: behind its deadline, perhaps."""
        if one := self._running_one(which):
            self.pass_time(minutes)
            self.promote()
            self.end(*one, Outcome(None, exit_code=0), False)

    @rule(queue=st.sampled_from(["default", "other"]), most=st.sampled_from([1, 2]))
    def run_at_the_limit(self, queue: str, most: int) -> None:
        """More is claimed than may run."""
        self.gate(queue, {"paused": False, "max_running": most})
        self.claim([queue], 5, "d", False)

    @rule(which=PICK, run=st.sampled_from([None, "seen"]))
    def cancel_and_retry(self, which: int, run: Any) -> None:
        self.cancel(which, run, False, False)
        self.retry(0, run, False)

    @precondition(lambda self: self._grandparents())
    @rule(which=PICK, lost=LOST)
    def cancel_a_tree(self, which: int, lost: bool) -> None:
        """A job is cancelled together with its dependents, and theirs."""
        job_id = self.pick(self._grandparents(), which)
        self.cancel((len(self.ids) - 1 - self.ids.index(job_id)), None, True, lost)

    def _grandparents(self) -> list[str]:
        jobs = self.model.jobs
        found = [job for job in jobs.values() if not job.ended and job.id in self.ids]
        parents = {job.id for job in found if any(child in jobs for _, child in job.children)}
        return [job.id for job in found if any(child in parents for _, child in job.children)]
