"""The model's rules for arrays: tasks are made as they may start, and their ends mean the end of the whole.

A task is a job like any other from when it is made. Of the places without one, some are cancelled (`skips`, and those
that were passed over), some ended with the array (`dropped`), and the others wait: they have their room in the queue.
What is to be done with every task is a `walk`, made by whoever works on the array: see `tasks`.
"""

from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import Any

from tests.model.state import ENDED, Job, Policy
from tests.model.transitions import Transitions
from workron import ids
from workron.models import When

AHEAD = 1000
"""Most tasks that wait, of an array without `max_parallel`."""


@dataclass
class Array:
    """A job's tasks: `ids` has those that are made and those that are not."""

    ids: list[str]
    parallel: int | None
    follows: tuple[str, str] | None = None
    """The array whose tasks are followed one by one, and how those have to end."""
    followers: list[tuple[str, str]] = field(default_factory=list)
    ended: deque[int | None] = field(default_factory=deque)
    """Places whose end the followers are still to be told of; None: all."""
    started: bool = False
    begun: bool = False
    """Whether a task has run in this run of the array."""
    next: int = 0
    """The first place that no task was made for yet; one that follows has its tasks made in any order."""
    skips: set[int] = field(default_factory=set)
    turns: set[int] = field(default_factory=set)
    """Tasks that would run now, or once more, if others did not."""
    dropped: str | None = None
    walk: str | None = None

    @property
    def prefix(self) -> int:
        return 0 if self.follows else len(self.ids) if self.dropped else self.next


class Arrays(Transitions):
    """All that is stored, with what the tasks of arrays do."""

    def __init__(self, policy: Policy, now: int) -> None:
        super().__init__(policy, now)
        self.arrays: dict[str, Array] = {}
        self.to_work: dict[str, int] = {}
        """Arrays that somebody has to go on with, and since when."""
        self.touched: dict[str, None] = {}
        """Those whose tasks have moved in this call, in this order."""

    # --- what is known of them --------------------------------------------------------------------

    def task(self, array: Array, place: int) -> Job | None:
        return self.jobs.get(array.ids[place])

    def never_made(self, array: Array) -> list[int]:
        first = 0 if array.follows else array.next
        places = [place for place in range(first, len(array.ids)) if place not in array.skips]
        return [place for place in places if not self.task(array, place)]

    def tasks_counted(self, array: Array) -> Counter[str]:
        tasks = [task for place in range(len(array.ids)) if (task := self.task(array, place))]
        counts = Counter(task.status for task in tasks)
        never = len(self.never_made(array))
        counts["cancelled"] += len(array.ids) - len(tasks) - never
        counts[array.dropped or "reserved"] += never
        return counts

    def reserved_in(self, queue: str) -> int:
        """Return how many tasks that are not made yet have their room in a queue."""
        arrays = [array for name, array in self.arrays.items() if self.jobs[name].queue == queue]
        return sum(self.tasks_counted(array)["reserved"] for array in arrays)

    def has_begun(self, job: Job) -> bool:
        return job.new.array is not None and self.arrays[job.id].started

    def status_of_task(self, array: Array, place: int) -> str | None:
        """Tell how a task stands, also one that was never made."""
        task = self.task(array, place)
        if task:
            return task.status
        return "cancelled" if place < array.prefix or array.dropped or place in array.skips else None

    # --- moves ------------------------------------------------------------------------------------

    def touch(self, array: str) -> None:
        self.touched[array] = None

    def _tell_array(self, job: Job, was: str, to: str, asked: bool) -> str:
        if job.new.array is not None:
            return self._tell_head(job, was, to, asked)
        if job.task is not None:
            self._tell_of_task(job, to)
        return to

    def _tell_head(self, job: Job, was: str, to: str, asked: bool) -> str:
        """An array that would be pending has its tasks made instead; one that ends takes along those never made."""
        if was == "new":
            self._arrive(job)
        elif was == "skipped" or (was in ENDED and asked):
            self.arrays[job.id].dropped = None
        array = self.arrays[job.id]
        if was in ENDED and to not in ENDED:
            array.begun = False
        if to == "pending":
            array.started = True
            if array.follows and self._has_ended_tasks(array.follows[0]):
                self._follow_all(job.id)
            self.touch(job.id)
            return "blocked"
        if to in ENDED:
            self._drop_rest(job.id, "skipped" if to == "skipped" else "cancelled")
        return to

    def _arrive(self, job: Job) -> None:
        new = job.new.array
        assert new
        array = self.arrays[job.id] = Array(ids.ids_from(new.first, new.size), new.max_parallel)
        for edge in job.new.depends_on:
            if edge.matching:
                array.follows = (edge.job, edge.when)
                self.arrays[edge.job].followers.append((job.id, edge.when))

    def _tell_of_task(self, job: Job, to: str) -> None:
        assert job.task
        name, place = job.task
        array = self.arrays[name]
        if to in ENDED:
            self._note_end(name, place)
        array.begun = array.begun or to == "running"
        self.touch(name)

    def _make(self, name: str, place: int, status: str = "pending", **fields: Any) -> None:
        head, array = self.jobs[name], self.arrays[name]
        of_the_whole = {"array": None, "unique": None, "deadline": None, "expires": None, "depends_on": ()}
        new = replace(head.new, id=array.ids[place], **of_the_whole)
        job = Job(new, head.created_at, head.queue, head.priority, task=(name, place), **fields)
        self.jobs[job.id] = job
        self._move(job, status)

    def _expire(self, kind: str, job: Job) -> None:
        """The deadline of an array is that of the whole; `expires` is about the start of its first task."""
        if not self.has_begun(job):
            super()._expire(kind, job)
        elif kind == "deadline" and job.expired_at is None:
            job.expired_at = self.now
            self._stop_array(job)
        elif kind == "expires" and job.cancel_requested_at is None and not self.arrays[job.id].begun:
            job.cancel_requested_at, job.reason = self.now, "expired"
            self._stop_array(job)

    def _run_again(self, name: str, place: int, prefix: int) -> None:
        """Run a task once more that has not succeeded, or make it if it never was."""
        array = self.arrays[name]
        task = self.task(array, place)
        if task and task.ended and task.status != "done":
            self._start_anew(task)
        elif not task and (place < prefix or (array.follows and place not in array.skips)):
            self._make(name, place)
        else:
            self.touch(name)

    def _drop_rest(self, name: str, how: str) -> None:
        array = self.arrays[name]
        if not array.dropped and self.never_made(array):
            array.dropped = how
            self._note_end(name, None)

    def _stop_array(self, job: Job) -> None:
        """Have all tasks cancelled: those never made at once, the others by and by."""
        array = self.arrays[job.id]
        array.turns.clear()
        self._drop_rest(job.id, "cancelled")
        array.walk = "cancel"
        self.to_work[job.id] = self.now
        self.touch(job.id)

    # --- tasks that follow others -----------------------------------------------------------------

    def _note_end(self, name: str, place: int | None) -> None:
        """Have those told that follow an array, by whoever propagates."""
        array = self.arrays[name]
        if array.followers:
            if not array.ended:
                self.walks.append(("follow", name))
            array.ended.append(place)

    def _has_ended_tasks(self, name: str) -> bool:
        array = self.arrays.get(name)
        return array is None or any(self.tasks_counted(array)[status] for status in ENDED)

    def tell_followers(self, name: str) -> None:
        array = self.arrays[name]
        while array.ended:
            place = array.ended[0]
            status = "cancelled" if place is None else self.status_of_task(array, place)
            for follower, when in array.followers if status in ENDED else ():
                if place is None:
                    self._follow_all(follower)
                else:
                    self._follow(follower, when, place, status)
            array.ended.popleft()

    def _follow(self, follower: str, when: str, place: int, status: str) -> None:
        """A task that is followed has ended: the one of its index starts, or is skipped."""
        head, array = self.jobs.get(follower), self.arrays.get(follower)
        if head is None or array is None or not array.started:
            return
        if head.cancel_requested_at is not None or head.expired_at is not None:
            return
        task, fits = self.task(array, place), when in (When.FINISHED, status)
        new = task is None and not array.dropped and place not in array.skips
        if new and not fits:
            error = f"skipped: task {place} of the array that it follows ended {status}"
            self._make(follower, place, "skipped", finished_at=self.now, reason="upstream", error=error)
        elif fits and (new or (task and task.status == "skipped")):
            if array.parallel is None:
                self._run_again(follower, place, 0)
            else:
                self._wait_for_turn(follower, place)

    def _follow_all(self, follower: str) -> None:
        """Have each task brought to what the one that it follows demands; what it is being told to do goes first."""
        if array := self.arrays.get(follower):
            array.walk = array.walk or "follow"
            self.to_work[follower] = self.now

    def _wait_for_turn(self, name: str, place: int) -> bool:
        self.touch(name)
        turns = self.arrays[name].turns
        new = place not in turns
        turns.add(place)
        return new

    # --- settling ---------------------------------------------------------------------------------

    def _settle_arrays(self) -> None:
        touched, self.touched = self.touched, {}
        for name in touched:
            if name in self.arrays and not self.arrays[name].walk:
                self._settle_array(self.jobs[name], self.arrays[name])

    def _settle_array(self, head: Job, array: Array) -> None:
        """End the array when all tasks have ended, have it wait anew when one runs again, make those that may start."""
        counts = self.tasks_counted(array)
        over = sum(counts[status] for status in ENDED) == len(array.ids) and not array.turns
        if over and not head.ended:
            self._end_array(head, counts)
        elif head.ended and not over:
            head.run += 1
            head.finished_at = head.reason = head.error = head.caused_by = head.cancel_requested_at = None
            self._move(head, "blocked", asked=False)
            self._to_visit(head)
            self.touch(head.id)
        elif not over and array.started:
            self._make_tasks(head.id, array, counts)

    def _end_array(self, head: Job, counts: Counter[str]) -> None:
        bad = counts["failed"] + counts["skipped"]
        if head.expired_at is not None and head.cancel_requested_at is None:
            self._end(head, "failed", reason="expired", error="expired: not done by its deadline")
        elif head.reason == "expired":
            self._end(head, "cancelled", reason="expired", error="expired: not started in time")
        elif head.cancel_requested_at is not None or (counts["cancelled"] and not bad):
            self._end(head, "cancelled", reason="cancelled")
        elif bad:
            size = len(self.arrays[head.id].ids)
            self._end(head, "failed", reason="upstream", error=f"{bad} of {size} tasks have not succeeded")
        else:
            self._end(head, "done")

    def _make_tasks(self, name: str, array: Array, counts: Counter[str]) -> None:
        """Make as many tasks as may start soon: first those that wait for their turn, then the next ones in order."""
        waiting = counts["pending"] + counts["scheduled"]
        room = AHEAD - waiting if array.parallel is None else array.parallel - waiting - counts["running"]
        for place in sorted(array.turns)[: max(room, 0)]:
            array.turns.remove(place)
            room -= 1
            self._run_again(name, place, array.prefix)
        while room > 0 and not array.follows and array.next < len(array.ids) and not array.dropped:
            place, room = array.next, room - 1
            array.next += 1
            if place in array.skips:
                array.skips.remove(place)
                self.touch(name)
            else:
                self._make(name, place)
