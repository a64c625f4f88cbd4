"""The kinds of faults in Redis: what each means, and what repairs it if a rebuild does not."""

from dataclasses import dataclass, field
from typing import Final

Ask = tuple[str | int, ...]
"""A command. The answer to `IN <list> <member>` is whether the list contains the member."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault. `by_hand`: what repairs it if a rebuild does not."""

    what: str
    by_hand: str = ""


KINDS: Final = {
    "missing": Kind("it does not stand where it has to: it is not claimed, not looked at in time, or not counted"),
    "surplus": Kind("an index, a lock or a key belongs to something that is gone, or has moved on"),
    "miscounted": Kind("a number is not that of the jobs that are there"),
    "malformed": Kind("a field can't be read, or can't be right"),
    "wrong-edge": Kind("a job does not wait as its dependencies ask for"),
    "stuck": Kind("an array or a final job waits for nothing"),
    "wrong-type": Kind("a key has another type; a rebuild renames it to `set-aside:…`"),
    "no-ttl": Kind("a key that has to go by itself would stay for ever"),
    "quarantined": Kind("it was passed over because one of its keys was damaged"),
    "damaged": Kind("a job is in no state, or no place, that there is", "delete its key, and submit it again"),
    "lost": Kind("what it belongs to is gone, and waits for it or is waited for", "cancel it, or delete its keys"),
    "foreign": Kind("a key under our prefix is none of ours", "delete it if nothing needs it"),
    "unreadable": Kind("a schedule can't be read", "put it again"),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: its kind (a key of KINDS), the object concerned, and what exactly was found.

    `mend`: commands that repair it during a rebuild.
    """

    code: str
    about: str
    detail: str
    mended: bool = False
    mend: tuple[Ask, ...] = field(default=(), compare=False, repr=False)

    @property
    def kind(self) -> Kind:
        return KINDS[self.code]


def shown(value: bytes | str) -> str:
    """Return the beginning of a value from Redis as printable text."""
    data = bytes_of(value) if isinstance(value, str) else value
    return data.decode("utf-8", "backslashreplace")[:200]


def text_of(value: bytes) -> str:
    """Return a name as text, even if it is not UTF-8; `bytes_of` is the inverse."""
    return value.decode("utf-8", "surrogateescape")


def bytes_of(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
