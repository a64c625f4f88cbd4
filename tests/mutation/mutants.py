"""The changes: each condition of a script, and each operand of it, is taken for true and for false."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.lua_source import LUA

ACCEPTED: Final = Path(__file__).with_name("accepted.txt")
_TOKEN: Final = re.compile(
    r"(?P<skip>--\[\[.*?\]\]|--[^\n]*|'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")|(?P<word>[A-Za-z_]\w*)|(?P<mark>[(){}\[\]])",
    re.DOTALL,
)
_CALL: Final = re.compile(r"([\w.]+)\s*\(")
_HARMLESS: Final = {
    *("and", "or", "not", "tonumber", "type", "next", "int", "string.find", "string.match", "string.sub", "math.min"),
    *("math.max", "is_array", "is_cascading", "has_hook", "is_gated", "ROWS.is_suspect", "expired_at", "visible"),
}


@dataclass(frozen=True, slots=True)
class Condition:
    """What stands between `if`, `elseif` or `while` and `then` or `do`: text[start:end] of one file of `lua/`."""

    file: str
    start: int
    end: int
    line: int
    loops: bool
    operands: tuple[tuple[int, int], ...]
    """The places of what `and` and `or` connect, if there are several."""


@dataclass(frozen=True, slots=True)
class Mutant:
    condition: Condition
    start: int
    end: int
    value: str

    def apply(self, text: str) -> str:
        """Return the file's text with the change; the old code is still there, but is not asked."""
        return f"{text[: self.start]} ({self.value}) {text[self.end :]}"

    def has_effects(self, text: str) -> bool:
        """Whether the old code, or what follows it, may do something: it calls what is not known to be harmless."""
        return any(name not in _HARMLESS for name in _CALL.findall(text[self.start : self.condition.end]))

    def describe(self, text: str) -> str:
        return f"lua/{self.condition.file}.lua:{self.condition.line}: {self.change(text)}"

    def change(self, text: str) -> str:
        """Say what is changed, as `accepted.txt` has it: it stays true when the line moves."""
        whole = " ".join(text[self.condition.start : self.condition.end].split())
        part = " ".join(text[self.start : self.end].split())
        return f"{whole}: `{part}` is {self.value}"


def accepted() -> dict[tuple[str, str], str]:
    """Return the changes that no test needs to notice: the file and what is changed, each with the reason."""
    reasons: dict[tuple[str, str], str] = {}
    for entry in ACCEPTED.read_text("utf-8").split("\n\n"):
        about, *reason = [line.strip() for line in entry.splitlines() if not line.startswith("#")] or [""]
        if about:
            file, _, change = about.partition(": ")
            reasons[file, change] = " ".join(reason)
    return reasons


def files() -> list[str]:
    """Return the names of all files of `lua/`, without their ending."""
    return sorted(str(path.relative_to(LUA).with_suffix("")) for path in LUA.rglob("*.lua"))


def conditions(file: str, text: str) -> Iterator[Condition]:
    """Find the conditions of a file, in order; one within another (in a function) counts as its own."""
    opened: list[
        tuple[int, bool, int, list[int]]
    ] = []  # start, whether it loops, depth of brackets, where `and`/`or` are
    depth = 0
    for token in _TOKEN.finditer(text):
        mark, word = token["mark"], token["word"]
        if mark:
            depth += 1 if mark in "({[" else -1
        elif word in ("if", "elseif", "while"):
            opened.append((token.end(), word == "while", depth, []))
        elif word in ("and", "or") and opened and opened[-1][2] == depth:
            opened[-1][3].extend((token.start(), token.end()))
        elif word in ("then", "do") and opened and opened[-1][2] == depth:
            if word == "do" and not opened[-1][1]:
                continue  # of a `for`, in a function within the condition
            start, loops, _, joints = opened.pop()
            edges = [start, *joints, token.start()]
            operands = tuple(zip(edges[::2], edges[1::2], strict=True)) if joints else ()
            line = text.count("\n", 0, start) + 1
            yield Condition(file, start, token.start(), line, loops, operands)


def mutants_of(condition: Condition) -> Iterator[Mutant]:
    """Make the changes of one condition; a loop is never made endless."""
    for value in ("false",) if condition.loops else ("true", "false"):
        for start, end in condition.operands or ((condition.start, condition.end),):
            yield Mutant(condition, start, end, value)


def instrument(text: str, numbered: Sequence[tuple[int, Condition]]) -> str:
    """Have each condition write its number to the server's log, its negative where it is false.

    Once in each call of a script: KEYS, which all of a script can see, remembers it.
    """

    def note(place: int, number: int) -> str:
        return f"(KEYS[-{place}] or redis.log(3, 'seen {number}') or rawset(KEYS, -{place}, true))"

    for number, condition in sorted(numbered, key=lambda pair: pair[1].start, reverse=True):
        inner = text[condition.start : condition.end].strip()
        noted = f"(({inner}\n) and {note(2 * number, number)} or {note(2 * number + 1, -number)} and false)"
        text = f"{text[: condition.start]} {noted} {text[condition.end :]}"
    return text
