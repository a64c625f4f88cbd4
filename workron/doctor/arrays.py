"""Compares the hash of an array with its job and its tasks, which are authoritative, and repairs it from them."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from workron.amounts import counted
from workron.doctor.faults import Ask, Fault, shown, text_of
from workron.doctor.places import LIVE, STATUSES, TERMINAL, number_of, row_of
from workron.doctor.reading import Reader
from workron.ids import decode, encode, is_id
from workron.redis.formats import Hook
from workron.redis.keys import Keys

STATES: Final = tuple(one for one in STATUSES if one != "blocked")
_DROPPED: Final = ("dropped", "dropped_as", "dropped_from")
_HASH: Final = ("size", "made", "parallel", "follows", "follows_when", *_DROPPED, "started", "walk", *STATES)
_JOB: Final = (
    "status", "batch", "queue", "hooks", "array_size", "array_first", "array_parallel", "array_follows",
    "array_follows_when", "cancel_requested_at",
)  # fmt: skip
_SAID: Final = ("size", "parallel", "follows", "follows_when")
"""Fields that the array's hash and its job have in common, by different names."""
_PAGE: Final = 1000


class Stock:
    """The keys of an array, read at one moment: its hash (`said`), its job (`head`), and the number of its tasks that
    are never created (`skips`), wait for their turn, or are done and deleted."""

    def __init__(self, keys: Keys, array: str, answers: Sequence[Any]) -> None:
        self._keys = keys
        self._array = array
        self.said, self.head = row_of(_HASH, answers[0]), row_of(_JOB, answers[1])
        self._skips, self._turns, self._swept = (one or 0 for one in answers[2:5])
        self._queued, self._waits = answers[5] is not None, bool(answers[6])
        self._again: Ask = ("ZADD", keys.arrays, 1, array)

    @staticmethod
    def commands(keys: Keys, array: str) -> list[Ask]:
        key = keys.array(array)
        return [
            ("HMGET", key, *_HASH),
            ("HMGET", keys.job(array), *_JOB),
            ("SCARD", f"{key}:skip"),
            ("ZCARD", f"{key}:turns"),
            ("BITCOUNT", f"{key}:swept"),
            ("ZSCORE", keys.arrays, array),
            ("EXISTS", keys.parents(array)),
        ]

    @property
    def known(self) -> bool:
        return Hook.ARRAY in self.head.get("hooks", "") and "batch" not in self.head and "status" in self.head

    @property
    def to_make(self) -> int:
        """Number of tasks that are not created yet, if the array was not dropped."""
        return self._size - self._number("made") - self._skips

    @property
    def _size(self) -> int:
        return number_of(self.head.get("array_size")) or number_of(self.said.get("size")) or 0

    @property
    def _dropped(self) -> tuple[int, str, int] | None:
        """Number of tasks that ended with the array before they were created, their status, and `made` at that time."""
        number, as_what, made = (self.said.get(field, "") for field in _DROPPED)
        if not number.isdecimal() or as_what not in ("cancelled", "skipped") or not made.isdecimal():
            return None
        return int(number), as_what, int(made)

    def _number(self, field: str) -> int:
        return number_of(self.said.get(field, "0")) or 0

    async def faults(self, tasks: Mapping[str, int], reader: Reader) -> list[Fault]:
        """Return the faults of the counts per status. Without a rebuild, only unfinished tasks are compared."""
        wrong = ", ".join(self._wrong(tasks))
        mend: list[Ask] = []
        if reader.lock is not None:
            last = await self._last_task(reader) if self._needs_last(tasks) else None
            key = self._keys.array(self._array)
            for field, right in self._rewritten(Counter(tasks), last).items():
                if self.said.get(field, "0" if field in STATES else None) != right:
                    mend.append(("HSET", key, field, right) if right else ("HDEL", key, field))
        if not wrong and not mend:
            return []
        return [Fault("miscounted", f"array:{self._array}", shown(wrong), mend=(*mend, self._again))]

    def _wrong(self, tasks: Mapping[str, int]) -> Iterator[str]:
        said = self.said
        if "made" not in said:
            yield "what is known of its tasks is gone"
            return
        yield from (f"{one} is {said.get(one)}" for one in _SAID if said.get(one) != self.head.get(f"array_{one}"))
        yield from (f"{one} is {said[one]}" for one in ("made", *STATES) if number_of(said.get(one, "0")) is None)
        live = {one: tasks[one] for one in STATES if one in LIVE}
        yield from (f"{one} is {self._number(one)}, not {live[one]}" for one in live if self._number(one) != live[one])
        there = sum(live.get(state, self._number(state)) for state in STATES)
        known = self._size if "dropped" in said else self._number("made") + self._skips
        if known != there or not 0 <= self._number("made") <= self._size:
            yield f"its counts add up to {counted(there, 'task')}, not {known}"

    def _needs_last(self, tasks: Mapping[str, int]) -> bool:
        """Whether `made` is impossible, so the tasks must be searched."""
        made = self._dropped[2] if self._dropped else number_of(self.said.get("made"))
        return made is None or not sum(tasks.values()) + self._swept <= made <= self._size

    async def _last_task(self, reader: Reader) -> int:
        """Return the highest index of an array's tasks, -1 if there are none."""
        first, last = self.head.get("array_first", ""), -1
        for start in range(0, self._size if is_id(first) else 0, _PAGE):
            places = range(start, min(start + _PAGE, self._size))
            there = await reader.read([("EXISTS", self._keys.job(encode(decode(first) + at))) for at in places])
            last = max([last, *(at for at, exists in zip(places, there, strict=True) if exists)])
        return last

    def _rewritten(self, tasks: Counter[str], last: int | None) -> dict[str, str | None]:
        """Return the correct fields of its hash. `last`: the highest index of a task if `made` is wrong."""
        head, said, number = self.head, self.said, tasks.total() + self._swept
        dropped = self._dropped
        if dropped and dropped[0] + dropped[2] + self._skips != self._size:
            dropped = None
        made = dropped[2] if dropped else self._number("made")
        if last is not None:
            made = number if "array_follows" in head else max(last + 1, number)
        stops = head["status"] in TERMINAL or "cancel_requested_at" in head
        rest = self._size - made - self._skips
        if stops and rest > 0 and not dropped:
            dropped = (rest, "skipped" if head["status"] == "skipped" else "cancelled", made)
        tasks["done"] += self._swept
        tasks["cancelled"] += self._skips + made - number
        if dropped:
            tasks[dropped[1]] += dropped[0]
        fields: dict[str, str | None] = {state: str(tasks[state]) for state in STATES}
        fields |= {one: head.get(f"array_{one}") for one in _SAID}
        fields["made"] = str(self._size if dropped else made)
        fields |= dict(zip(_DROPPED, map(str, dropped) if dropped else (None, None, None), strict=True))
        if number and "made" not in said:
            fields["begun"] = "1"
        if "started" not in said and (number or (head["status"] == "blocked" and not self._waits)):
            fields["started"] = "1"
        if "made" not in said and stops and head["status"] not in TERMINAL:
            fields |= {"walk": "cancel", "walk_at": "0"}
        return fields

    async def stuck(self, at_once: Callable[[Sequence[Ask]], Awaitable[list[Any]]]) -> list[Fault]:
        """Report an array that should advance, but that no list names."""
        ended, over = sum(self._number(state) for state in TERMINAL), self.head["status"] in TERMINAL
        busy = any(self._number(state) for state in ("pending", "scheduled", "running"))
        to_make = self._turns or ("follows" not in self.said and self._number("made") < self._size)
        all_ended = ended >= self._size and not self._turns
        about = f"array:{self._array}"
        if self._queued or "walk" in self.said:
            return []
        if all_ended != over or ("started" in self.said and not all_ended and not busy and to_make):
            return [Fault("stuck", about, f"{ended} of {counted(self._size, 'task')} ended", mend=(self._again,))]
        if over or "array_follows" not in self.head:
            return []
        followed = self.head["array_follows"]
        [status, untold, *answers] = await at_once([
            ("HGET", self._keys.job(followed), "status"),
            ("EXISTS", self._keys.array_ended(followed)),
            *self.commands(self._keys, self._array),
        ])  # fmt: skip
        now = Stock(self._keys, self._array, answers)
        moves = (now.said, now.head) != (self.said, self.head)
        goes_on = untold or (status is not None and text_of(status) not in TERMINAL)
        if moves or goes_on or busy or self._turns or "started" not in self.said:
            return []
        mend = ("HSET", self._keys.array(self._array), "walk", "follow", "walk_at", 0), self._again
        return [Fault("stuck", about, f"it waits for tasks of {followed}, which have ended", mend=mend)]
