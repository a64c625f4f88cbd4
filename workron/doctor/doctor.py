"""One examination: all keys, all counts, all lists that are long."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from workron.connection import Connection
from workron.doctor.faults import Fault
from workron.doctor.inspector import Inspector, text_of
from workron.doctor.tally import EventsLost, Tally
from workron.doctor.walk import Walk
from workron.errors import InvalidRequest, StoreBroken
from workron.keys import Keys
from workron.schedules.book import ScheduleBook
from workron.schedules.plan import times_of
from workron.scripts import Scripts

_TRIES: Final = 5
_ROUNDS: Final = 5
_LIST_PAGE: Final = 1000
_HIDE_JOBS: Final = frozenset({"wrong-type", "unreadable", "damaged", "not-listed"})
"""Where something like that was found, jobs may be missing from what is counted."""


@dataclass(frozen=True, slots=True)
class Report:
    """What an examination found. With repair: `mended` are faults that are gone now, `faults` those that are left."""

    faults: tuple[Fault, ...]
    mended: tuple[Fault, ...]
    keys: int
    jobs: int
    seconds: float
    uncounted: str
    """Why counts were not compared; '' if they were."""
    rollbacks: int
    rolled_back: str


class Doctor:
    """Examines one namespace. Safe to run beside everything, also by several at once."""

    def __init__(self, connection: Connection, keys: Keys, scripts: Scripts) -> None:
        self._connection = connection
        self._keys = keys
        self._scripts = scripts

    async def examine(self, *, repair: bool = False) -> Report:
        """Look at everything. `repair`: mend what can be, and look again until nothing is left that can."""
        began_s = time.monotonic()
        mended: list[Fault] = []
        for _ in range(_ROUNDS):
            inspector = Inspector(self._scripts, mend=repair)
            walk, uncounted = await self._look(inspector)
            done = [fault for fault in inspector.faults if fault.mended]
            mended += done
            if not done:
                break
        rollbacks, rolled_back = await self._rollbacks()
        return Report(
            faults=tuple(_once(fault for fault in inspector.faults if not fault.mended)),
            mended=tuple(_once(mended)),
            keys=walk.keys,
            jobs=walk.jobs,
            seconds=time.monotonic() - began_s,
            uncounted=uncounted,
            rollbacks=rollbacks,
            rolled_back=rolled_back,
        )

    async def _rollbacks(self) -> tuple[int, str]:
        try:
            number, last = await self._connection.call("HMGET", self._keys.meta, "rollbacks", "rolled_back")
        except StoreBroken:  # it has another type, as the report says
            return 0, ""
        return int(number or 0), text_of(last or b"")

    async def _look(self, inspector: Inspector) -> tuple[Walk, str]:
        walk = Walk(self._connection, self._keys, inspector)
        await walk.run()
        await self._look_at_schedules(walk.schedules, inspector)
        if any(fault.code in _HIDE_JOBS for fault in inspector.faults):
            return walk, "some jobs could not be found or read: mend that first"
        for _ in range(_TRIES):
            tally = Tally(self._connection, self._keys, self._scripts)
            try:
                await tally.read_all()
                wrong = [
                    item for name in sorted(walk.counted | tally.names()) for item in await tally.wrong_counts(name)
                ]
            except EventsLost:
                continue
            await inspector.ask("count", wrong)
            await inspector.ask("totals", ["unsettled" if wrong else "settled"])
            if not wrong:  # else they would be taken for what they are not
                await inspector.ask("workflow", walk.workflows)
            await self._search_long_lists(walk, tally, inspector)
            return walk, ""
        return walk, "more happens than can be followed: try again when less is going on"

    async def _look_at_schedules(self, names: Sequence[str], inspector: Inspector) -> None:
        """Find those that can't be read, and those that have forgotten when their next time is: their words say it."""
        book = ScheduleBook(self._connection, self._keys, self._scripts)
        for name in names:
            try:
                schedule, _ = await book.look(name)
                next_ms = schedule and times_of(schedule).after(schedule.last_at_ms or schedule.updated_at_ms)
            except (StoreBroken, InvalidRequest, ValueError, LookupError) as error:
                inspector.add("unreadable", f"schedule {name}", f"put it anew: {error!s:.100}")
            else:
                if (
                    schedule
                    and next_ms
                    and not (schedule.definition.paused or schedule.next_at_ms or schedule.queued_at_ms)
                ):
                    await inspector.ask("occurrence", [f"{next_ms} {schedule.version} {name}"])

    async def _search_long_lists(self, walk: Walk, tally: Tally, inspector: Inspector) -> None:
        """Have pending jobs searched for that were not seen in the long lists of their queue, in two readings."""
        for queue in {name.split(":")[1] for name in walk.long_lists}:
            pending = set(tally.pending_in(queue))
            for name in walk.long_lists * 2:
                if name.split(":")[1] == queue and pending:
                    pending -= await self._members(self._keys.prefix + name)
            await inspector.ask("line", sorted(pending))

    async def _members(self, key: str) -> set[str]:
        """Read a list from its end, where nothing that is taken from its head makes a page miss some."""
        found: set[str] = set()
        place = -1
        while page := await self._connection.call("LRANGE", key, place - _LIST_PAGE + 1, place):
            found |= {text_of(one) for one in page}
            place -= _LIST_PAGE
        return found


def _once(faults: Iterable[Fault]) -> Iterable[Fault]:
    return dict.fromkeys(faults)
