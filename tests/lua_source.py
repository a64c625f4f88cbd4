"""Reads a transition in lua/: what its header says, and what its body does."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from workron.redis.script_source import FOUND_BY_DATA

LUA: Final = Path(__file__).resolve().parents[1] / "lua"
SCRIPTS: Final = tuple(sorted(path.stem for path in LUA.glob("*.lua")))
STRING: Final = r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\""
COMMENT: Final = re.compile(rf"({STRING})|--\[\[.*?\]\]|--[^\n]*", re.DOTALL)
SLOT: Final = re.compile(r"-- (KEYS|ARGV)\[(\d+)(\.\.)?\]  +(\S+)  +(\S.*)")
ARGUMENT: Final = re.compile(r"(?:tonumber\()?ARGV\[(\d+)\]\)?(?: [=~]= \S+)?")
FUNCTION: Final = re.compile(r"^(?:local )?function ([\w.]+)(\(.*?)^end$", re.DOTALL | re.MULTILINE)
WORD: Final = re.compile(r"[A-Z][A-Z_]+")


@dataclass(frozen=True)
class Slot:
    """One documented slot; `tail`: a flat repeated list that starts there."""

    index: int
    name: str
    text: str
    tail: bool

    @property
    def width(self) -> int | None:
        """Return how many arguments one element of a tail takes; None when the text points elsewhere."""
        if self.text.startswith("see "):
            return None
        return len(re.sub(r"\([^)]*\)", "", self.text).split(","))


class Source:
    """A Lua file without its comments, and the literals in it."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.body = COMMENT.sub(lambda match: match[1] or "", text)
        self.header = re.match(r"(?:--[^\n]*\n)*", text)[0].splitlines()  # type: ignore[index] # matches ''

    @cached_property
    def uses(self) -> list[str]:
        """Return the parts of the library that its header names."""
        lines = [line for line in self.header if line.startswith("-- uses: ")]
        return lines[0].removeprefix("-- uses: ").split() if lines else []

    @cached_property
    def functions(self) -> dict[str, str]:
        """Return the body of each function of the file's top level."""
        return {match[1]: match[2] for match in FUNCTION.finditer(self.body)}

    def calls(self, names: Mapping[str, object], body: str | None = None) -> set[str]:
        """Return which of these functions are called."""
        code = self.body if body is None else body
        called = re.findall(r"(?<![\w.:])([\w.]+)\(", code) + re.findall(r"\bpcall\(([\w.]+)", code)
        return set(called) & names.keys()


class Script(Source):
    """A transition: header and body, with the library files that stand in front of it."""

    def __init__(self, name: str, text: str, library: Mapping[str, Source]) -> None:
        super().__init__(name, text)
        self.library = library

    @cached_property
    def parts(self) -> set[str]:
        """Return all parts that stand in front of it: those that it uses, and what they use."""
        found, to_visit = set[str](), {"core", *self.uses}
        while to_visit:
            part = to_visit.pop()
            found.add(part)
            to_visit |= set(self.library[part].uses) - found
        return found

    @cached_property
    def slots(self) -> dict[str, list[Slot]]:
        """Return the documented slots of KEYS and ARGV, with text that goes on in the next lines."""
        slots: dict[str, list[Slot]] = {"KEYS": [], "ARGV": []}
        last: list[Slot] = []
        for line in self.header:
            match = SLOT.fullmatch(line)
            if match:
                last = slots[match[1]]
                last.append(Slot(int(match[2]), match[4], match[5], match[3] is not None))
            elif last and line.startswith("--     "):
                slot = last.pop()
                last.append(Slot(slot.index, slot.name, f"{slot.text} {line[2:].strip()}", slot.tail))
            else:
                last = []
        return slots

    @cached_property
    def returns(self) -> str:
        """Return the header from `Returns` on."""
        text = "\n".join(self.header)
        return text[text.index("-- Returns ") :] if "-- Returns " in text else ""

    def indices(self, table: str) -> set[int]:
        """Return the numbers by which the body takes from KEYS or ARGV."""
        return {int(number) for number in re.findall(rf"\b{table}\[(\d+)\]", self.body)}

    @cached_property
    def locals(self) -> list[tuple[str, str]]:
        """Return (name, value) of each local of the top level, as in `local WIDTH, EDGES = 10, 200`."""
        return [
            pair
            for names, values in re.findall(r"^local ([\w, ]+) = (.*)$", self.body, re.MULTILINE)
            for pair in zip(names.split(", "), split_top_level(values), strict=False)
        ]

    @cached_property
    def named(self) -> list[tuple[str, int]]:
        """Return (name, index) of each argument that the body gives a name: a local's, or a field's of a table."""
        fields: list[tuple[str, str]] = re.findall(r"^  (\w+) = (.*),$", self.body, re.MULTILINE)
        found = ((name, ARGUMENT.fullmatch(value)) for name, value in [*self.locals, *fields])
        return [(name, int(match[1])) for name, match in found if match]

    @cached_property
    def loop(self) -> tuple[int, int] | None:
        """Return where the body's loop over the repeated arguments starts, and its step."""
        match = re.search(r"\bfor \w+ = (\d+), #ARGV(?:, (\w+))? do", self.body)
        if match is None:
            return None
        step = match[2] or "1"
        return int(match[1]), int(step if step.isdigit() else dict(self.locals)[step])

    @cached_property
    def offsets(self) -> set[int]:
        """Return how far behind the start of an element the body takes its arguments."""
        return {int(number or 0) for number in re.findall(r"\bARGV\[[a-z]\w*(?: \+ (\d+))?\]", self.body)}

    @cached_property
    def library_tails(self) -> set[int]:
        """Return the starts that are handed to library functions which read ARGV themselves."""
        readers = [name for name, body in self.library_functions.items() if "ARGV" in body]
        handed = [rf"\b{re.escape(reader)}\((\d+)[,)]" for reader in readers]
        handed.append(r"\blocal at = (\d+)\nwhile ARGV\[at\] do")  # a cursor that such a function moves on
        return {int(n) for pattern in handed for n in re.findall(pattern, self.body)}

    @cached_property
    def library_functions(self) -> dict[str, str]:
        return {name: body for file in self.parts for name, body in self.library[file].functions.items()}

    @cached_property
    def reached(self) -> set[str]:
        """Return the library functions that the body, or what is always run of the library, calls, directly or not."""
        always = {name for name in self.library_functions if name.startswith(FOUND_BY_DATA)}
        for file in self.parts:
            always |= self.calls(self.library_functions, FUNCTION.sub("", self.library[file].body))
        return self._reached_from(self.calls(self.library_functions) | always)

    @cached_property
    def reached_by_itself(self) -> set[str]:
        """Return the library functions that the body calls, directly or not."""
        return self._reached_from(self.calls(self.library_functions))

    def _reached_from(self, to_visit: set[str]) -> set[str]:
        reached: set[str] = set()
        while to_visit:
            name = to_visit.pop()
            reached.add(name)
            to_visit |= self.calls(self.library_functions, self.library_functions[name]) - reached
        return reached

    @cached_property
    def replies(self) -> set[str]:
        """Return the status words that the script can answer with: those in its body or returned by what it calls."""
        words = upper_words(without_redis_calls(self.body))
        for name in self.reached:
            for statement in re.findall(r"\breturn\b(.*)", self.library_functions[name]):
                words |= upper_words(without_redis_calls(statement))
        return words

    @cached_property
    def item_words(self) -> set[str]:
        """Return the lower-case words that functions of the body answer with, one per element."""
        returned = re.findall(r"\breturn\b(.*)", self.body)
        return {word for text in returned for word in literals(without_redis_calls(text)) if word.islower()}


def literals(code: str) -> list[str]:
    return [literal[1:-1] for literal in re.findall(STRING, code)]


def upper_words(code: str) -> set[str]:
    return {literal for literal in literals(code) if WORD.fullmatch(literal)}


def split_top_level(code: str) -> list[str]:
    """Split at the commas that are not in brackets."""
    parts, depth = [""], 0
    for char in code:
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def without_redis_calls(code: str) -> str:
    """Drop the arguments of redis.call and redis.pcall: command names and options are no replies."""
    return "".join(_outside_redis_calls(code))


def _outside_redis_calls(code: str) -> Iterator[str]:
    at = 0
    brackets = re.sub(STRING, lambda match: "_" * len(match[0]), code)  # those in literals don't count
    for match in re.finditer(r"redis\.p?call\(", code):
        if match.start() < at:
            continue
        yield code[at : match.end()]
        at, depth = match.end(), 1
        while depth and at < len(code):
            depth += (brackets[at] == "(") - (brackets[at] == ")")
            at += 1
    yield code[at:]


def read_library(directory: Path) -> dict[str, Source]:
    return {path.stem: Source(path.stem, path.read_text()) for path in sorted(directory.glob("lib/*.lua"))}


def read_scripts(directory: Path) -> dict[str, Script]:
    library = read_library(directory)
    return {path.stem: Script(path.stem, path.read_text(), library) for path in sorted(directory.glob("*.lua"))}


def replaced(old: str, new: str) -> Callable[[str], str]:
    """Return a change of a text, for tests of the checkers; it fails where the text does not contain `old`."""

    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return change
