"""What a store asked of its server for schedules, and was answered: read off its calls, in the order they were made."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from workron import ids

_ARGUMENTS: Final = 5
"""Where those of a script begin in its call: EVALSHA, its name, the number of keys, two keys."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The jobs of an occurrence were to be stored. `by`: the number of the store that asked; `call`: of its call."""

    by: int
    call: int
    name: str
    version: str
    kind: str
    at: int
    following: str
    key: str
    first: str
    size: int
    answer: tuple[Any, ...]

    @property
    def ids(self) -> list[str]:
        return ids.ids_from(self.first, self.size)


@dataclass(frozen=True, slots=True)
class Moved:
    """A schedule was to be moved on without jobs."""

    by: int
    call: int
    name: str
    version: str
    kind: str
    at: int
    last: int
    following: str
    what: str
    number: int
    text: str
    answer: str


@dataclass(frozen=True, slots=True)
class Put:
    """A schedule was to be stored, on what was seen."""

    by: int
    call: int
    name: str
    seen: str
    version: str
    answer: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Other:
    """Something else was to be done, that is done by one call."""

    by: int
    call: int
    what: str
    answer: str


Move = Asked | Moved | Put | Other


def moves_of(by: int, call: int, script: str, command: Sequence[Any], reply: Any) -> Iterator[Move]:
    """What a call of a script was about, as far as schedules are concerned."""
    if script not in ("job_submit", "schedule_advance", "schedule_put", "schedule_delete", "job_cancel"):
        return
    told = [one.decode() if isinstance(one, bytes) else str(one) for one in command[_ARGUMENTS:]]
    if script == "job_submit":
        yield from _submitted(by, call, told, [_plain(answer) for answer in reply[1:]])
    elif script == "schedule_advance":
        name, version, kind, at, last, following, what, number, text = told
        yield Moved(
            by, call, name, version, kind, int(at), int(last), following, what, int(number), text, _plain(reply)[0]
        )
    elif script == "schedule_put":
        name, seen, version = told[:3]
        yield Put(by, call, name, seen, version, _plain(reply))
    elif script in ("schedule_delete", "job_cancel"):
        yield Other(by, call, script, _plain(reply)[0])


def _submitted(by: int, call: int, told: Sequence[str], answers: Sequence[tuple[Any, ...]]) -> Iterator[Asked]:
    starts = [place for place, one in enumerate(told) if one.startswith("schedule:")]
    for place, answer in zip(starts, answers if starts else (), strict=True):
        version, kind, at, following, key = told[place + 1].split(" ")
        name = told[place].removeprefix("schedule:")
        size, first = int(told[place + 4]), told[place + 5]
        yield Asked(by, call, name, version, kind, int(at), following, key, first, size, answer)


def _plain(reply: Any) -> tuple[Any, ...]:
    return tuple(one.decode() if isinstance(one, bytes) else one for one in reply)
