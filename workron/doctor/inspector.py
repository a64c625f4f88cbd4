"""Asks `lua/inspect.lua` about jobs and keys, in calls of bounded work."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from workron.doctor.faults import Fault
from workron.errors import StoreBroken
from workron.scripts import Scripts

ITEMS: Final = 100
"""Items in one call."""
_FEWER: Final = {"line": 20, "concurrency": 20}
"""Of these, that are more work."""
_ABOUT: Final[Mapping[str, Callable[[list[str]], str]]] = {
    "line": lambda words: f"job {words[0]}",
    "edge": lambda words: f"job {words[0]}",
    "slot": lambda words: f"concurrency:{words[0]}",
    "waiting": lambda words: f"job {words[2]}",
    "turn": lambda words: f"job {words[0]}",
    "totals": lambda _: "meta",
    "occurrence": lambda words: f"schedule {words[2]}",
    "member": lambda words: words[1],
    "lasting": lambda words: words[1],
    "type": lambda words: words[1],
    "count": lambda words: words[3],
    "orphan": lambda words: words[0],
}
"""What a fault is about, by the words of the item: see `lua/lib/inspection.lua` and `leftovers.lua`."""


class Inspector:
    """Gathers faults; with `mend`, those that can safely be are put right as they are found."""

    def __init__(self, scripts: Scripts, *, mend: bool = False) -> None:
        self._scripts = scripts
        self._mend = mend
        self.faults: list[Fault] = []

    async def ask(self, what: str, items: Sequence[str]) -> None:
        """Look at items, whatever their number."""
        number, start = _FEWER.get(what, ITEMS), 0
        while start < len(items):
            page = [bytes_of(item) for item in items[start : start + number]]
            try:
                [_, looked, *found] = await self._scripts.inspect(self._mend, what, page)
            except StoreBroken as error:
                # A key of the wrong type, which is told of itself; the others wait for its mend.
                self.add("unreadable", f"{what} {items[start]} …", str(error))
                start += number
            else:
                self.faults += _faults(what, found)
                start += looked

    def add(self, code: str, about: str, detail: str) -> None:
        self.faults.append(Fault(code, _shown(bytes_of(about)), detail))


def _faults(what: str, found: Iterable[Any]) -> Iterator[Fault]:
    for item, code, detail, mended in found:
        words = _shown(item).split(" ", {"waiting": 2, "occurrence": 2, "count": 3}.get(what, 1))
        about = _ABOUT[what](words) if what in _ABOUT else f"{what} {_shown(item)}"
        yield Fault(code.decode(), about, _shown(detail), bool(mended))


def _shown(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


def text_of(value: bytes) -> str:
    """Return a name that may have been written by anybody; `bytes_of` gives it back as it was."""
    return value.decode("utf-8", "surrogateescape")


def bytes_of(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
