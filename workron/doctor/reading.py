"""Reads Redis for checks. What looks wrong is read a second time, in one script.

A check is a generator: it yields commands, receives their answers, and returns its faults. Many checks run together,
with one call per round. A job that moves between two reads looks wrong although it is not. One script therefore repeats
the commands of a check with faults, and only the second result counts.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Container, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, repeat
from typing import Any, Final

from workron.doctor.faults import Ask, Fault, text_of
from workron.doctor.patience import patiently
from workron.doctor.rebuild_lock import RebuildLock, flat, packed, pages
from workron.errors import StoreBroken, StoreUnavailable
from workron.redis.connection import Connection
from workron.redis.keys import Keys
from workron.redis.scripts import Scripts

Steps = Generator[Sequence[Ask], list[Any], Any]
Check = Generator[Sequence[Ask], list[Any], list[Fault]]
Maker = Callable[[], Check]

SIDE_BY_SIDE: Final = 200
_PAGE: Final = 1000
SHORT: Final = 1000
"""A list of up to this length is read each time, a longer one once."""
_ENDS: Final = 5000
"""Entries at both ends of a long list that are searched again: a job may have moved since the list was read."""
_TRIES: Final = 30
_REREAD: Final = 20


class Seen:
    """A Bloom filter of 16 MiB for members of lists: with a million of them, about one error in a million questions."""

    def __init__(self) -> None:
        self._bits = bytearray(1 << 24)

    def _places(self, item: tuple[str, str]) -> Iterator[tuple[int, int]]:
        number = hash(item) & (1 << 64) - 1 | hash(item[::-1]) << 64
        for shift in (0, 32, 64, 96):
            place = number >> shift & (1 << 27) - 1
            yield place >> 3, 1 << (place & 7)

    def add(self, item: tuple[str, str]) -> None:
        for place, bit in self._places(item):
            self._bits[place] |= bit

    def __contains__(self, item: tuple[str, str]) -> bool:
        return all(self._bits[place] & bit for place, bit in self._places(item))


@dataclass(frozen=True, slots=True)
class _Long:
    """The members of one long list."""

    seen: Seen
    key: str

    def __contains__(self, member: object) -> bool:
        return (self.key, str(member)) in self.seen


class Reader:
    """Runs checks. During a rebuild, faults are not read a second time, and are repaired."""

    def __init__(self, connection: Connection, keys: Keys, scripts: Scripts, lock: RebuildLock | None = None) -> None:
        self._connection = connection
        self._keys = keys
        self._scripts = scripts
        self.lock = lock
        self._seen: Seen | None = None
        self._long: dict[str, int] = {}
        """Long list → how often it was read."""

    async def ask(self, makers: Iterable[Maker], side_by_side: int = SIDE_BY_SIDE) -> list[Fault]:
        """Run checks; return their faults."""
        found: list[Fault] = []
        for page in pages(makers, side_by_side):
            running = [(make, *_begin(make)) for make in page]
            while running:
                answers = iter(await self.read([command for _, _, asked in running for command in asked]))
                still, looked = [], list[Fault]()
                for make, check, asked in running:
                    wanted, ended = _go_on(check, [next(answers) for _ in asked])
                    if wanted is not None:
                        still.append((make, check, wanted))
                    elif ended:
                        looked += ended if self.lock else await self._confirm(make)
                found += await self.mended(looked)
                running = still
        return found

    async def mended(self, found: list[Fault]) -> list[Fault]:
        """Repair the faults during a rebuild; return them."""
        if self.lock is not None and found:
            await self.lock.write([command for one in found for command in one.mend])
        return found

    async def read(self, commands: Sequence[Ask]) -> list[Any]:
        """Return the answers to commands, in their order; None also where a key has another type."""
        lists = await self._lists(list(dict.fromkeys(str(one[1]) for one in commands if one[0] == "IN")))
        scores: dict[str, list[str]] = defaultdict(list)  # of many members of a set, by one command
        for command in commands:
            if command[0] == "ZSCORE":
                scores[str(command[1])].append(str(command[2]))
        answers = await self._run(
            [("ZMSCORE", key, *members) for key, members in scores.items()]
            + [command for command in commands if command[0] not in {"ZSCORE", "IN"}]
        )
        rest = iter(answers[len(scores) :])
        of_sets = {key: iter(answer or repeat(None)) for key, answer in zip(scores, answers, strict=False)}
        return [
            str(one[2]) in lists[str(one[1])]
            if one[0] == "IN"
            else next(of_sets[str(one[1])] if one[0] == "ZSCORE" else rest)
            for one in commands
        ]

    async def at_once(self, commands: Sequence[Ask]) -> list[Any]:
        """Return the answers to commands that one script runs."""
        asked: list[Ask] = []
        for command in commands:
            asked += _search(*command[1:]) if command[0] == "IN" else [command]
        [_, _, _, answers, *_] = await patiently(partial(self._scripts.doctor_survey, "-", "", flat(asked)))
        rest = iter(answers)
        return [
            self._is_in(str(one[1]), str(one[2]), list(islice(rest, 3))) if one[0] == "IN" else next(rest)
            for one in commands
        ]

    async def scan(self, command: str, *key: str, match: str = "") -> AsyncIterator[list[str]]:
        """Yield keys, or the members of a set, in pages."""
        cursor, options = b"0", ("MATCH", match) if match else ()
        while True:
            [answer] = await self._run([(command, *key, text_of(cursor), *options, "COUNT", _PAGE)])
            if answer is None:
                return  # it has another type by now
            cursor, page = answer
            yield [text_of(one) for one in (page[::2] if command == "ZSCAN" else page)]
            if int(cursor) == 0:
                return

    async def missing(self, key: str, members: Sequence[str]) -> list[str]:
        """Return the members that a list does not contain."""
        there = (await self._lists([key]))[key]
        return [member for member in members if member not in there]

    async def renew(self) -> None:
        """Renew the lock of a rebuild."""
        if self.lock is not None:
            await self.lock.renew()

    async def _run(self, commands: Sequence[Ask]) -> list[Any]:
        await self.renew()
        answers: list[Any] = []
        for page in pages(commands, _PAGE):
            answers += await patiently(partial(self._connection.each, [packed(command) for command in page]))
        for at, answer in enumerate(answers):
            if isinstance(answer, Exception):
                if "WRONGTYPE" not in str(answer):
                    raise StoreBroken(f"Redis refuses to read a key: {answer}") from answer
                answers[at] = None
        return answers

    async def _lists(self, keys: Sequence[str]) -> dict[str, Container[str]]:
        short = [key for key in keys if key not in self._long]
        heads = await self._run([("LRANGE", key, 0, SHORT) for key in short])
        found: dict[str, Container[str]] = {}
        for key, head in zip(short, heads, strict=True):
            found[key] = {text_of(one) for one in head or ()}
            if len(head or ()) > SHORT:
                await self._read_list(key)
        return found | {key: _Long(self._seen, key) for key in keys if key in self._long and self._seen}

    async def _read_list(self, key: str) -> None:
        """Read a list from its end, so that jobs taken from its head do not shift the pages."""
        self._seen = self._seen or Seen()
        self._long[key] = self._long.get(key, 0) + 1
        place = -1
        while True:
            [page] = await self._run([("LRANGE", key, place - _PAGE + 1, place)])
            for one in page or ():
                self._seen.add((key, text_of(one)))
            if not page:
                return
            place -= _PAGE

    def _is_in(self, key: str, member: str, answers: list[Any]) -> bool:
        first, last, length = answers
        if first is not None or last is not None or (length or 0) <= 2 * _ENDS:
            return not (first is None and last is None)
        return key == self._keys.propagate or (self._seen is not None and (key, member) in self._seen)

    async def _confirm(self, make: Maker) -> list[Fault]:
        answers: dict[Ask, Any] = {}
        for _ in range(_TRIES):
            ended: list[Fault] = []
            wanted: Sequence[Ask] | None
            check, wanted = _begin(make)
            while wanted is not None and all(command in answers for command in wanted):
                wanted, ended = _go_on(check, [answers[command] for command in wanted])
            if wanted is None:
                return ended
            check.close()
            for key in {str(one[1]) for one in wanted if one[0] == "IN"} & self._long.keys():
                if self._long[key] < _REREAD:
                    await self._read_list(key)
            asked = [*dict.fromkeys([*answers, *wanted])]
            answers = dict(zip(asked, await self.at_once(asked), strict=True))
        raise StoreUnavailable("something changes all the time while it is looked at: try again")


def _search(key: str | int, member: str | int) -> Iterator[Ask]:
    yield "LPOS", key, member, "MAXLEN", _ENDS
    yield "LPOS", key, member, "RANK", -1, "MAXLEN", _ENDS
    yield "LLEN", key


def _begin(make: Maker) -> tuple[Check, Sequence[Ask]]:
    check = make()
    return check, next(check)


def _go_on(check: Check, answers: list[Any]) -> tuple[Sequence[Ask] | None, list[Fault]]:
    try:
        return check.send(answers), []
    except StopIteration as ended:
        return None, ended.value
