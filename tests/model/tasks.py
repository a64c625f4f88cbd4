"""The model: tasks of arrays one by one, and who goes on with arrays."""

from collections import Counter
from collections.abc import Sequence

from tests.model.arrays import Array
from tests.model.graph import Graph
from tests.model.state import Job, Policy, Refused


class Tasks(Graph):
    """A scheduler that works on arrays. `dies`: who makes this call does not, as no answer comes."""

    def __init__(self, policy: Policy, now: int) -> None:
        super().__init__(policy, now)
        self.dies = False

    def work_on(self, name: str) -> None:
        """Go over the tasks that there are, and make those that may start."""
        while not self.dies:
            self.to_work.pop(name, None)
            if name not in self.arrays:
                return
            self._walk(name, self.arrays[name])
            self.touch(name)
            self._settle()
            self.propagate()
            if name not in self.to_work:
                return

    def tidy(self) -> None:
        """Go on with all that there are, also with those that come meanwhile."""
        while self.to_work and not self.dies:
            self.work_on(min(self.to_work, key=lambda name: (self.to_work[name], name)))

    def _walk(self, name: str, array: Array) -> None:
        walk, upto = array.walk, len(array.ids) if array.follows else array.next
        for place in range(upto) if walk else ():
            if walk == "cancel":
                self._cancel_task(name, place)
            elif walk == "retry":
                self._retry_task(name, place)
            if array.follows and walk != "cancel":
                self._catch_up(name, place)
        array.walk = None

    def _catch_up(self, name: str, place: int) -> None:
        """Do for a task what has happened to the one that it follows."""
        array = self.arrays[name]
        assert array.follows
        followed, when = array.follows
        status = self.status_of_task(self.arrays[followed], place) if followed in self.arrays else "cancelled"
        if status in ("done", "failed", "cancelled", "skipped"):
            self._follow(name, when, place, status)

    def _cancel_task(self, name: str, place: int) -> str:
        array = self.arrays[name]
        task = self.task(array, place)
        array.turns.discard(place)
        if task:
            return ("cancelled" if task.status == "cancelled" else "ended") if task.ended else self._cancel(task)
        if place >= array.prefix and not array.dropped and place not in array.skips:
            array.skips.add(place)
            self._note_end(name, place)
            self.touch(name)
        return "cancelled"

    def _retry_task(self, name: str, place: int) -> str:
        array = self.arrays[name]
        task = self.task(array, place)
        if task.status in ("failed", "cancelled") if task else place < array.prefix:
            if array.parallel is not None:
                return "retried" if self._wait_for_turn(name, place) else "not_ended"
            self._run_again(name, place, array.prefix)
            return "retried"
        if task:
            return "ended" if task.status == "done" else "not_ended"
        head = self.jobs[name]
        stopped = array.follows and (head.cancel_requested_at is not None or head.expired_at is not None)
        if place not in array.skips or (stopped and not head.ended):
            return "not_ended"
        array.skips.remove(place)
        self.touch(name)
        if stopped:
            head.cancel_requested_at = head.expired_at = None
        if array.follows:
            self._catch_up(name, place)
        return "retried"

    def _retry_all(self, name: str) -> None:
        array = self.arrays[name]
        array.skips.clear()
        array.walk = "retry"
        self.to_work[name] = self.now

    # --- asked for --------------------------------------------------------------------------------

    def steer_tasks(self, name: str, what: str, places: Sequence[int]) -> dict[str, int]:
        """Cancel or retry some tasks; returns how many of them are what then."""
        head, array = self.jobs.get(name), self.arrays.get(name)
        if head is None:
            raise Refused("NotFound")
        if array is None:
            raise Refused("Conflict")
        if max(places) >= len(array.ids):
            raise Refused("InvalidRequest")
        first = 0 if array.follows else array.next
        dropped = array.dropped and any(place >= first and not self.task(array, place) for place in places)
        if not array.started or (what == "retry" and dropped):
            raise Refused("Conflict")
        if what == "retry" and head.ended and (holder := self.kept_off_by(head)):
            raise Refused("UniqueConflict", holder.id)
        act = self._cancel_task if what == "cancel" else self._retry_task
        words = Counter(act(name, place) for place in places)
        self._settle()
        self.propagate()
        self.work_on(name)
        return dict(words)

    def head_of(self, job: Job) -> Job:
        """Return the job whose end or further run a job's own means: a task's array."""
        return self.jobs[job.task[0]] if job.task else job

    def kept_off_by(self, job: Job) -> Job | None:
        """Return who holds the unique key that a job needs to run once more."""
        holder = self._holder(job.new.unique.key) if job.new.unique else None
        return None if holder is job else holder
