"""The model: schedules, and what becomes of their occurrences.

Schedules are moved by whoever looks at them, one call after the other. Which calls were made, and in which order, the
model is told (`moves`): it has its own answer to each, does what was to be done, and says when nothing should be left.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, assert_never

from tests.model.bridge import MINUTE
from tests.model.recorded_calls import Asked, Move, Moved, Other, Put
from tests.model.schedule_specs import Said
from tests.model.state import Refused
from tests.model.submitting import IDEMPOTENCY_MS, Submissions
from workron import ids
from workron.schedules.models import CatchUp, Overlap
from workron.times import rfc3339

SHOWN = 20
"""Runs that are shown; as many unfinished ones are remembered."""
STEPS = 50
"""Most steps with one schedule in one pass."""
PASSED_OVER = 1000
"""Most occurrences that are passed over in one step."""
LUMPED: Final = ("skipped", "missed", "refused")

Run = tuple[int, str, int, int, str | None, str | None, str | None]
"""When, outcome, how many, recorded when, job, workflow, error."""


@dataclass
class Schedule:
    """A schedule: what it says, and how far it has come."""

    said: Said
    created_at: int
    updated_at: int
    version: str = ""
    born: str = ""
    next: int | None = None
    last: int | None = None
    queued: int | None = None
    look: tuple[int, int] | None = None
    """When it is looked at, at the earliest and at the latest."""
    active: list[str] = field(default_factory=list)
    """Its runs that had not ended when one was started last, the newest behind: jobs, and workflows with `+`."""
    runs: list[Run] = field(default_factory=list)
    """The newest first."""
    counts: Counter[str] = field(default_factory=Counter)


class Book:
    """All schedules of a model."""

    def __init__(self, model: Submissions) -> None:
        self.model = model
        self.schedules: dict[str, Schedule] = {}
        self.asked_for: dict[tuple[str, str], tuple[tuple[str, ...], int]] = {}
        """Schedule and Idempotency-Key → what a run by hand was answered, and until when it is known."""
        self._refusals: dict[tuple[str, str, int], tuple[str, str]] = {}
        """Why occurrences can't be stored, as found out by those who are about to note it."""

    @property
    def now(self) -> int:
        return self.model.now

    # --- what people ask for ----------------------------------------------------------------------

    def put(self, name: str, said: Said, *, keep_paused: bool = False) -> None:
        """Create a schedule, or replace what it says. Another time counts from now; what is due stays so else."""
        before = self.schedules.get(name)
        if before is None:
            schedule = self.schedules[name] = Schedule(said, self.now, self.now)
            schedule.next = None if said.paused else said.line.after(self.now)
            self._look_again(schedule)
            return
        if keep_paused:
            said = replace(said, paused=before.said.paused)
        if said.paused:
            before.next = None
        elif before.next is None or said.line != before.said.line:
            before.next = said.line.after(max(self.now, before.last or 0))
        before.said, before.updated_at = said, self.now
        self._look_again(before)

    def pause(self, name: str, paused: bool) -> None:
        before = self.schedules.get(name)
        if before and before.said.paused != paused:
            self.put(name, replace(before.said, paused=paused))

    def delete(self, name: str) -> str:
        return "UNSCHEDULED" if self.schedules.pop(name, None) else "UNKNOWN"

    def known(self, name: str) -> Schedule:
        if name not in self.schedules:
            raise Refused("NotFound")
        return self.schedules[name]

    # --- calls, in the order in which they were made ----------------------------------------------

    def replay(self, moves: Sequence[Move], acts: dict[int, Callable[[], object]], *, planned: bool = True) -> None:
        """Do what was asked. `acts`: what the stores were told to do, by their numbers, done by a single call each.

        `planned`: who asked had just looked.
        """
        self._refusals = {}
        finals: list[str] = []
        for place, move in enumerate(moves):
            answer = self._answer(move, acts, planned)
            assert answer in (None, move.answer), f"{move}: in the model {answer}"
            finals, self.model.finals = finals + self.model.finals, []
            follows = place + 1 < len(moves) and moves[place + 1].call == move.call
            if not follows:
                self.model.tell_dependents()
        self.model.finals = finals

    def _answer(self, move: Move, acts: dict[int, Callable[[], object]], planned: bool) -> Any:
        match move:
            case Asked():
                return self._start(move, planned)
            case Moved():
                return self._move(move, planned)
            case Put():
                return self._put(move, acts[move.by])
            case Other():
                return acts[move.by]()
        assert_never(move)

    def nothing_is_left(self, moves: Sequence[Move]) -> None:
        """After a whole pass, all that is due has been worked on."""
        for name, schedule in self.schedules.items():
            if schedule.look and schedule.look[1] <= self.now:
                steps = sum(not isinstance(move, Other) and move.name == name for move in moves)
                assert steps >= STEPS, f"{name} was not worked on"

    def _put(self, move: Put, act: Callable[[], object]) -> tuple[Any, ...]:
        before = self.schedules.get(move.name)
        if before and before.version == move.version:
            return "SCHEDULED", int(before.born == move.version)
        if (before.version if before else "") != move.seen:
            return ("OTHERWISE",)
        act()
        after = self.schedules[move.name]
        after.version, after.born = move.version, after.born or move.version
        return "SCHEDULED", int(before is None)

    # --- occurrences ------------------------------------------------------------------------------

    def _is_due(self, move: Asked | Moved) -> bool:
        schedule = self.schedules.get(move.name)
        if schedule is None or schedule.version != move.version or schedule.said.paused or move.at > self.now:
            return False
        return move.at == {"next": schedule.next, "queued": schedule.queued}[move.kind]

    def _must_wait(self, schedule: Schedule, kind: str) -> bool:
        """Whether an earlier run has not ended; who waits already goes first."""
        if schedule.said.overlap is Overlap.ALLOW or kind == "run":
            return False
        return (kind == "next" and schedule.queued is not None) or bool(self._unfinished(schedule))

    def _unfinished(self, schedule: Schedule) -> list[str]:
        return [run for run in schedule.active if self._goes_on(run)]

    def _goes_on(self, run: str) -> bool:
        if run.startswith("+"):
            workflow = self.model.workflows.get(run[1:])
            return workflow is not None and self.model.unfinished(workflow) > 0
        return run in self.model.jobs and not self.model.jobs[run].ended

    def _plan(self, schedule: Schedule) -> tuple[str, int, int, int]:
        """What is to be done with what is due: `start` or `missed`, the last of those meant, how many, what follows."""
        first, line = schedule.next or 0, schedule.said.line
        at, following, missed = [first], line.after(first), 0
        while missed < PASSED_OVER and self._is_skipped(schedule.said.catch_up, at[-1], following):
            at, following, missed = [*at, following], line.after(following), missed + 1
        return ("missed", at[-2], missed, at[-1]) if missed else ("start", first, 1, following)

    def _is_skipped(self, catch_up: CatchUp, at: int, following: int) -> bool:
        if catch_up is CatchUp.LAST:
            return self.now - following > MINUTE
        return catch_up is CatchUp.NONE and self.now - at > MINUTE

    def _start(self, asked: Asked, planned: bool) -> tuple[Any, ...]:
        """Store the jobs of an occurrence, and move its schedule on; neither if it is not as it was seen."""
        schedule = self.schedules.get(asked.name)
        if asked.kind == "run":
            earlier, until = self.asked_for.get((asked.name, asked.key), ((), 0))
            if earlier and until > self.now:
                return "REPEATED", *earlier
            if schedule is None or schedule.version != asked.version:
                return ("MISMATCH",)
        elif not self._is_due(asked) or self._must_wait(self.schedules[asked.name], asked.kind):
            return ("MISMATCH",)
        assert schedule
        if asked.kind == "next" and planned:
            assert self._plan(schedule) == ("start", asked.at, 1, int(asked.following)), f"{asked} is not to be started"
        return self._store(asked, schedule)

    def _store(self, asked: Asked, schedule: Schedule) -> tuple[Any, ...]:
        work = schedule.said.work
        env = {"WORKRON_SCHEDULE": asked.name, "WORKRON_SCHEDULED_AT": rfc3339(asked.at)}
        jobs = work.made(asked.first, env)
        assert len(jobs) == asked.size
        assert ids.decode(asked.first) >> 80 == asked.at
        workflow = ids.ids_from(jobs[-1].id, 2)[1] if work.is_workflow else None
        if any(job.id in self.model.jobs for job in jobs):
            assert asked.kind == "run", f"{asked} is started twice"
            return "STORED", 0
        occurrence = (asked.version, asked.kind, asked.at)
        try:
            stored = self.model.submit(jobs, workflow=workflow, on_failure=work.on_failure, alone=False)
        except Refused as refused:
            self._refusals[occurrence] = refused.error, self._told(refused)
            return self._as_given(asked, refused)
        returned = len(jobs) == 1 and stored[0] != asked.first
        self._record(asked, schedule, workflow, stored[0] if returned else None)
        return ("RETURNED", stored[0]) if returned else ("STORED", self.now)

    def _as_given(self, asked: Asked, refused: Refused) -> tuple[Any, ...]:
        """The answer for what is refused; how long to wait for room, and which key it is, is not looked at."""
        if refused.error == "QueueFull":
            return asked.answer if asked.answer[0] == "QUEUE_FULL" else ("QUEUE_FULL",)
        return asked.answer if asked.answer[:2] == ("HELD", refused.args[1]) else ("HELD", refused.args[1])

    def _told(self, refused: Refused) -> str:
        return f"job {refused.args[1]} holds the unique key" if refused.error == "UniqueConflict" else ""

    def _record(self, asked: Asked, schedule: Schedule, workflow: str | None, holder: str | None) -> None:
        if holder:
            self._note(schedule, asked.at, "skipped", error=f"job {holder} holds its unique key")
        else:
            run = f"+{workflow}" if workflow else asked.first
            schedule.active = [*self._unfinished(schedule), run][-SHOWN:]
            outcome = "manual" if asked.kind == "run" else "fired"
            self._note(schedule, asked.at, outcome, job=None if workflow else asked.first, workflow=workflow)
        self._go_on(schedule, asked.kind, asked.at, asked.following)
        if asked.key != "-":
            answer = (holder or asked.first, str(asked.size), workflow or "")
            self.asked_for[asked.name, asked.key] = answer, self.now + IDEMPOTENCY_MS
        self._look_again(schedule)

    def _move(self, moved: Moved, planned: bool) -> str:
        """Move a schedule on without a start: what waits, was missed, is refused, or has to come later."""
        if not self._is_due(moved):
            return "OTHERWISE"
        schedule = self.schedules[moved.name]
        refusal, why = self._refusals.get((moved.version, moved.kind, moved.at), ("", ""))
        if moved.what == "later":
            assert not planned or refusal == "QueueFull"
            assert 1000 <= moved.number <= MINUTE
            schedule.look = (self.now + moved.number,) * 2
            return "MOVED"
        if moved.what == "hold":
            if not self._must_wait(schedule, moved.kind):
                return "OTHERWISE"
            self._hold(schedule, moved)
        else:
            if moved.what == "missed":
                expected = self._plan(schedule)
                told = ("missed", moved.last, moved.number, int(moved.following))
                assert not planned or told == expected, f"{moved}: in the model {expected}"
            else:
                assert refusal == "UniqueConflict"
                assert moved.text.startswith(why)
            self._go_on(schedule, moved.kind, moved.last, moved.following)
            self._note(schedule, moved.at, moved.what, moved.number, error=moved.text or None)
        self._look_again(schedule)
        return "MOVED"

    def _hold(self, schedule: Schedule, moved: Moved) -> None:
        if moved.kind == "next":
            self._go_on(schedule, moved.kind, moved.last, moved.following)
            if schedule.said.overlap is Overlap.QUEUE and schedule.queued is None:
                schedule.queued = moved.at
            else:
                self._note(schedule, moved.at, "skipped")

    def _go_on(self, schedule: Schedule, kind: str, last: int, following: str) -> None:
        if kind == "queued":
            schedule.queued = None
        elif kind == "next":
            schedule.last, schedule.next = last, int(following)

    def _note(self, schedule: Schedule, at: int, outcome: str, number: int = 1, **about: str | None) -> None:
        """Write down what became of occurrences; some are lumped together when they come in a row."""
        schedule.counts[outcome] += number
        before = schedule.runs[0] if schedule.runs else None
        if before and outcome in LUMPED and before[1] == outcome:
            at, number = before[0], before[2] + number
            del schedule.runs[0]
        run = (at, outcome, number, self.now, about.get("job"), about.get("workflow"), about.get("error"))
        schedule.runs = [run, *schedule.runs][:SHOWN]

    def _look_again(self, schedule: Schedule) -> None:
        """A queued occurrence is looked at within five seconds, the next one when it comes."""
        schedule.look = None
        if schedule.said.paused:
            return
        if schedule.next is not None:
            schedule.look = (schedule.next, schedule.next)
        if schedule.queued is not None:
            soon, late = self.now + 1000, self.now + 5000
            at = schedule.next if schedule.next is not None else late
            schedule.look = (min(at, soon), min(at, late))
