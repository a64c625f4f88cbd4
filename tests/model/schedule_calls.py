"""How schedules are asked for something, at model and store, with what goes wrong meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from reaper.firing import Firing
from tests.model.bridge import Trouble
from tests.model.reaper_rules import ReaperRules
from tests.model.recorded_calls import Move
from tests.model.schedule_specs import NAMES, Said
from tests.model.state import Refused
from workron import ids
from workron.errors import Conflict, IdempotencyConflict, NotFound
from workron.models import Submitted
from workron.schedules.models import Overlap
from workron.schedules.plan import Kind
from workron.specs.schedule import expand
from workron.store import Store, occurrence

Drawn = tuple[str, int, str] | None
"""What goes wrong, after how many calls, and what is done in between."""
Act = tuple[Callable[[], Awaitable[Any]], Callable[[], object]]
"""Something to be done, and what the model does when its call is made."""


def nothing() -> None:
    """What a reaper does follows from the calls that it makes."""


class Reaper(Firing):
    """One that can be waited for, also when it broke off: what it has begun goes on."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._tasks: set[asyncio.Task[Any]] = set()

    async def _work_on(self, name: str) -> int:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        return await super()._work_on(name)

    async def pass_over(self) -> int:
        try:
            return (await self.fire()).started
        finally:
            await asyncio.gather(*self._tasks, return_exceptions=True)


async def run_by_hand(store: Store, name: str, at: int, key: str) -> Submitted:
    """As the API does it."""
    salt = ids.new_id()
    for _ in range(10):
        seen = await store.schedules.get(name)
        work = expand(seen.definition)
        with suppress(IdempotencyConflict):  # it was changed meanwhile
            return await occurrence.submit(store, seen, work, kind=Kind.RUN, at_ms=at, salt=salt, key=key)
    raise AssertionError("a run by hand does not come through")


class ScheduleCalls(ReaperRules):
    """What the rules of schedules are made of."""

    def ask(
        self,
        what: str,
        real: Callable[[], Awaitable[Any]],
        act: Callable[[], object],
        answer: Callable[[Sequence[Move]], Any],
        drawn: Drawn,
    ) -> None:
        """Make a call that does `act` by one call of its own; `answer`: the model's, to all that was asked."""
        acts, trouble = {1: act}, None
        if drawn is not None:
            way, calls, between = drawn
            other, acts[2] = self._between(between)
            trouble = Trouble(calls, "lost" in way, "twice" in way, other if "meanwhile" in way else None)

        async def fresh() -> Any:
            self.bridge.trace.taken()
            return await real()

        def model() -> Any:
            moves = self.bridge.trace.taken()
            self.model.book.replay(moves, acts)
            return answer(moves)

        self.bridge.connection.trouble = trouble
        self.do(f"{what}; trouble: {drawn}", fresh, model)
        self.bridge.connection.trouble = None
        self.note_jobs()

    def note_jobs(self) -> None:
        self.ids += [one for one in self.model.jobs if one not in self.ids]
        self.workflows += [one for one in self.model.workflows if one not in self.workflows]

    def _between(self, what: str) -> Act:
        """Something that another store does in between, by one call if it is no pass."""
        name = self.pick(list(self.model.book.schedules) or [NAMES[0]], len(self.calls))
        schedule, store = self.model.book.schedules.get(name), self.bridge.other_store
        active = [job for job in map(self.model.jobs.get, schedule.active if schedule else ()) if job]
        if what == "put" and schedule:
            real, act = self.putting(store, name, replace(schedule.said, overlap=Overlap.SKIP), True)
        elif what in ("pause", "resume"):
            real, act = self.pausing(store, name, what == "pause")
        elif what == "cancel" and active and not active[-1].children:
            real, act = self.cancelling(store, active[-1].id)
        elif what == "delete":
            real, act = self.deleting(store, name)
        else:
            real, act = Reaper(store).pass_over, nothing

        async def quietly() -> None:
            with suppress(NotFound, Conflict):
                await real()

        return quietly, act

    def putting(self, store: Store, name: str, said: Said, keep_paused: bool) -> Act:
        async def real() -> bool:
            return (await store.schedules.put(name, said.definition(), keep_paused=keep_paused))[1]

        return real, lambda: self.model.book.put(name, said, keep_paused=keep_paused)

    def pausing(self, store: Store, name: str, paused: bool) -> Act:
        async def real() -> bool:
            return (await store.schedules.pause(name, paused=paused)).definition.paused

        return real, lambda: self.model.book.pause(name, paused)

    def deleting(self, store: Store, name: str) -> Act:
        return lambda: store.schedules.delete(name), lambda: self.model.book.delete(name)

    def cancelling(self, store: Store, job_id: str) -> Act:
        def act() -> None:
            with suppress(Refused):
                self.model.cancel(job_id)

        return lambda: store.cancel(job_id), act
