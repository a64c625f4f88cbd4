"""The rules of schedules: what people ask of them, and reapers that work on them, alone, two at once, or too late."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from tests.model.bridge import MINUTE
from tests.model.driver import PICK
from tests.model.recorded_calls import Asked, Move, Other, Put
from tests.model.schedule_calls import Drawn, Reaper, ScheduleCalls, nothing, run_by_hand
from tests.model.schedule_specs import NAMES, Said, says
from tests.model.scheduling import Schedule
from tests.model.state import WAITING, Refused
from tests.queue_limits import limit_queue
from workron import ids

NAME: Final = st.sampled_from(NAMES)


def _troubles(calls: Sequence[int]) -> st.SearchStrategy[Drawn]:
    ways = st.sampled_from(["lost", "twice", "meanwhile", "meanwhile", "meanwhile, twice"])
    between = st.sampled_from(["fire", "fire", "put", "pause", "resume", "delete", "cancel"])
    return st.one_of(*[st.none()] * 3, st.tuples(ways, st.sampled_from(calls), between))


TROUBLE: Final = _troubles([0])
IN_A_PASS: Final = _troubles([0, 0, 1, 1, 2, 3])
MORE: Final = st.sampled_from([0, 0, 0, 1, 2, 12, 41])
"""Minutes in which nobody looks."""
LONGEST: Final = 60
"""Minutes to wait for an occurrence: in them, others come."""
AFTER: Final = st.sampled_from(["", "end", "end", "run", "again", "full"])
TURNS: Final = st.lists(st.tuples(MORE, AFTER), min_size=1, max_size=4)


class ScheduleRules(ScheduleCalls):
    """All that can be asked of schedules, and what their reapers do."""

    # --- people -----------------------------------------------------------------------------------

    @initialize(asked=st.lists(says, min_size=1, max_size=2))
    def begin_schedules(self, asked: list[Said]) -> None:
        for name, said in zip(NAMES, asked, strict=False):
            self._put(name, said, False)

    @rule(name=NAME, said=says, keep_paused=st.booleans(), trouble=TROUBLE)
    def put(self, name: str, said: Said, keep_paused: bool, trouble: Drawn) -> None:
        self._put(name, said, keep_paused, trouble)

    def _put(self, name: str, said: Said, keep_paused: bool, trouble: Drawn = None) -> None:
        what = f"put schedule {name} {said}, keep paused {keep_paused}"
        real, act = self.putting(self.store, name, said, keep_paused)

        def answer(moves: Sequence[Move]) -> bool:
            own = [move for move in moves if isinstance(move, Put) and move.by == 1]
            return bool(own[-1].answer[1])

        self.ask(what, real, act, answer, trouble)

    @rule(name=NAME, paused=st.booleans(), trouble=TROUBLE)
    def pause(self, name: str, paused: bool, trouble: Drawn) -> None:
        real, act = self.pausing(self.store, name, paused)

        def answer(_: Sequence[Move]) -> bool:
            return self.model.book.known(name).said.paused

        self.ask(f"pause schedule {name}, {paused}", real, act, answer, trouble)

    @rule(name=NAME, trouble=TROUBLE)
    def delete_schedule(self, name: str, trouble: Drawn) -> None:
        real, act = self.deleting(self.store, name)

        def answer(moves: Sequence[Move]) -> None:
            if [move.answer for move in moves if isinstance(move, Other) and move.by == 1][-1] == "UNKNOWN":
                raise Refused("NotFound")

        self.ask(f"delete schedule {name}", real, act, answer, trouble)

    @rule(name=NAME, key=st.sampled_from(["-", "-", "k"]), trouble=TROUBLE)
    def run_schedule(self, name: str, key: str, trouble: Drawn) -> None:
        async def real() -> Any:
            submitted = await run_by_hand(self.store, name, self.model.now, key)
            return submitted.ids, submitted.repeated, submitted.returned

        def answer(moves: Sequence[Move]) -> Any:
            asked = [move for move in moves if isinstance(move, Asked) and (move.by, move.kind) == (1, "run")]
            return self._answer_of_run(name, asked)

        self.ask(f"run schedule {name}, key {key}", real, nothing, answer, trouble)

    def _answer_of_run(self, name: str, asked: Sequence[Asked]) -> Any:
        if not asked or asked[-1].answer == ("MISMATCH",):
            assert name not in self.model.book.schedules
            raise Refused("NotFound")
        match asked[-1].answer:
            case ("STORED", _):
                return tuple(asked[-1].ids), False, False
            case ("RETURNED", holder):
                return (holder,), False, True
            case ("REPEATED", first, size, _):
                return tuple(ids.ids_from(first, int(size))), True, False
            case ("HELD", holder, _):
                raise Refused("UniqueConflict", holder)
            case _:
                raise Refused("QueueFull")

    # --- reapers ----------------------------------------------------------------------------------

    @rule(by_two=st.booleans(), trouble=IN_A_PASS)
    def fire(self, by_two: bool, trouble: Drawn) -> None:
        """One pass, or two at once."""
        whole = False

        async def real() -> Any:
            nonlocal whole
            whole = False
            reapers = [Reaper(self.store), Reaper(self.bridge.other_store)][: 1 + by_two]
            passes = await asyncio.gather(*(reaper.pass_over() for reaper in reapers), return_exceptions=True)
            for one in passes:
                if isinstance(one, BaseException):
                    raise one
            whole = True
            return sum(one for one in passes if isinstance(one, int)) if trouble is None else None

        def answer(moves: Sequence[Move]) -> int | None:
            if whole:
                self.model.book.nothing_is_left(moves)
            asked = [move for move in moves if isinstance(move, Asked)]
            return sum(move.answer[0] == "STORED" for move in asked) if trouble is None else None

        self.ask(f"fire{' by two' if by_two else ''}", real, nothing, answer, trouble)

    @precondition(lambda self: self._waiting())
    @rule(which=PICK, turns=TURNS)
    def go_on_for_a_while(self, which: int, turns: list[tuple[int, str]]) -> None:
        self._go_on(which, turns, False, None)

    @precondition(lambda self: self._waiting())
    @rule(which=PICK, turns=TURNS, by_two=st.booleans(), trouble=IN_A_PASS)
    def go_on_with_trouble(self, which: int, turns: list[tuple[int, str]], by_two: bool, trouble: Drawn) -> None:
        self._go_on(which, turns, by_two, trouble)

    def _go_on(self, which: int, turns: list[tuple[int, str]], by_two: bool, trouble: Drawn) -> None:
        """The times of some occurrences come; what was started ends, or not, or is asked for by hand."""
        for more, after in turns:
            if not self._waiting():
                break
            name = self._wait_for(which, more)
            self.fire(by_two, trouble)
            self._after(name, after)

    def _after(self, name: str, what: str) -> None:
        schedule = self.model.book.schedules.get(name)
        if schedule and what == "end":
            for job_id in self._active_jobs(schedule):
                self.do(f"cancel {job_id}", partial(self._cancelled, job_id), partial(self.model.cancel, job_id))
            self.fire(False, None)
        elif schedule and what == "run":
            self.run_schedule(name, "-", None)
        elif what == "again":
            self.fire(False, None)
        elif schedule and what == "full":
            self._with_a_full_queue(schedule)

    def _with_a_full_queue(self, schedule: Schedule) -> None:
        """A time comes when no more jobs may wait in a queue of its jobs than do."""
        queue = schedule.said.work.jobs[0]["queue"]
        waiting = sum(job.queue == queue and job.status in WAITING for job in self.model.jobs.values())
        for most in (max(1, waiting), None):
            model = partial(self.model.gate, queue, {"max_pending": most})
            self.do(f"limit {queue} to {most}", partial(self._limit, queue, most), model, again=False)
            ahead = (schedule.next or 0) - self.model.now
            self.pass_time(min(max(0, -(-ahead // MINUTE)), LONGEST))
            self.fire(False, None)

    async def _limit(self, queue: str, most: int | None) -> None:
        await limit_queue(self.store, queue, most)

    async def _cancelled(self, job_id: str) -> str:
        return str((await self.store.cancel(job_id)).value)

    def _active_jobs(self, schedule: Schedule) -> list[str]:
        jobs = [job for job in map(self.model.jobs.get, schedule.active) if job]
        flows = [flow for flow in (self.model.workflows.get(run[1:]) for run in schedule.active) if flow]
        jobs += [job for flow in flows for job in map(self.model.jobs.get, flow.jobs) if job]
        return [job.id for job in jobs if not job.ended]

    @precondition(lambda self: self._waiting())
    @rule(
        which=PICK,
        said=says,
        change=st.sampled_from(["work", "work", "all", "pause", "delete"]),
        trouble=st.one_of(st.just(("meanwhile", 0, "fire")), TROUBLE),
    )
    def change_what_is_due(self, which: int, said: Said, change: str, trouble: Drawn) -> None:
        """The time of an occurrence has come, and its schedule is changed before anybody looks, or just then."""
        name = self._wait_for(which, 1)
        if change == "work":
            said = replace(said, line=self.model.book.schedules[name].said.line)
        if change == "pause":
            self.pause(name, True, trouble)
            self.pause(name, False, None)
        elif change == "delete":
            self.delete_schedule(name, trouble)
            self._put(name, said, True)
        else:
            self._put(name, said, True, trouble)
        self.fire(False, None)

    def _waiting(self) -> list[str]:
        return [name for name, schedule in self.model.book.schedules.items() if schedule.next is not None]

    def _wait_for(self, which: int, more: int) -> str:
        name = self.pick(self._waiting(), which)
        ahead = (self.model.book.schedules[name].next or 0) - self.model.now
        self.pass_time(min(max(0, -(-ahead // MINUTE)), LONGEST) + more)
        return str(name)

    @precondition(lambda self: self.bridge.trace.sent)
    @rule(which=PICK)
    def come_late(self, which: int) -> None:
        """A call for an occurrence comes once more, when it has long been made."""
        command = self.pick(self.bridge.trace.sent, which)

        async def real() -> None:
            self.bridge.trace.taken()
            await self.bridge.connection.call(*command)

        def model() -> None:
            self.model.book.replay(self.bridge.trace.taken(), {}, planned=False)

        self.do(f"once more: {command[5:]}", real, model, again=False)
        self.note_jobs()
