"""The machine that drives model and store together: each rule is a call, made at both, whose answers have to be equal.

A reply may be lost: the call was made, its caller knows nothing, and makes it again. A call may also come once more,
long after it was answered. In the end all that is left is run, and has to end.
"""

from tests.builders import SUCCESS
from tests.model.array_rules import ArrayRules
from tests.model.park_rules import ParkRules
from tests.model.schedule_rules import ScheduleRules
from tests.model.scripted_sequences import Courses
from tests.model.stage_rules import StageRules


class Machine(ArrayRules, StageRules, ParkRules, ScheduleRules, Courses):
    """All that can be asked of a scheduler."""

    def to_the_end(self) -> None:
        """Run what is left: everything ends then, and is as the model says."""
        for queue in ("default", "other"):
            self.gate(queue, {"paused": False, "max_running": None, "rate": None})
        for _ in range(40 + len(self.model.jobs)):  # of a concurrency key, one runs at a time
            if all(job.ended for job in self.model.jobs.values()):
                break
            self.propagate()
            self.promote()
            self.tidy()
            self.hear_all()
            self.claim(["default", "other"], 50, "c", False)
            for job_id, fence in self.running():
                self.end(job_id, fence, SUCCESS, False)
            self.pass_time(10)
        else:
            left = [job for job in self.model.jobs.values() if not job.ended]
            raise AssertionError(f"not ended: {left}")
        self.propagate()
        self.fire(by_two=False, trouble=None)
        self.all_is_as_the_model_says()
        self.audit()
        self.examine()
