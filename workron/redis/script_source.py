"""Assembles a script: its own file behind the parts of `lua/lib` that it uses, without functions that it never calls.

Redis runs the whole text at each call and creates every function in it, so each one costs time of the server. A
function finds each local of an outer block by a search through all captured locals; one of a function around it, at
once. So the block of a part, `do … end`, becomes a function that is called where it stands.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

FOUND_BY_DATA: Final = ("HOOKS.", "JOB.", "STEER.", "WALKS.")
"""Tables whose functions are found by a word that is data: they always stay."""
_USES: Final = re.compile(r"^-- uses: (.+)$", re.MULTILINE)
_FUNCTION: Final = re.compile(r"^(?:local )?function ([\w.]+)\([^)\n]*\)\n.*?^end\n", re.DOTALL | re.MULTILINE)
_BLOCK: Final = re.compile(r"^do\n(\n.*)^end\n\Z", re.DOTALL | re.MULTILINE)
"""The block of a part with its functions. `rebuild_lock` has one of statements, which may end the script."""
_COMMENT: Final = re.compile(r"""('(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")|--[^\n]*""")
"""A string, which may contain `--`, or a comment."""
_NAME: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


@functools.cache
def _folder() -> Traversable:
    return resources.files("lua")


@dataclass(frozen=True, slots=True)
class _Part:
    """A file of Lua: its text, the names used outside of functions, and by each function of its top level."""

    text: str
    names: frozenset[str]
    functions: Mapping[str, frozenset[str]]


@functools.cache
def _text(*path: str) -> str:
    """Read a file once: most parts are in many scripts."""
    return _folder().joinpath(*path).read_text("utf-8")


def read_all() -> None:
    """Read all files, so that scripts can be assembled when none is left to open."""
    for folder in (), ("lib",):
        for file in _folder().joinpath(*folder).iterdir():
            if file.name.endswith(".lua"):
                _text(*folder, file.name)


def forget() -> None:
    """Forget what was assembled, for tests that change the text of files."""
    _part.cache_clear()
    assemble.cache_clear()


def _names(text: str) -> frozenset[str]:
    return frozenset(_NAME.findall(_COMMENT.sub(lambda match: match[1] or "", text)))


@functools.cache
def _part(*path: str) -> _Part:
    text = _text(*path)
    functions: dict[str, frozenset[str]] = {}
    for match in _FUNCTION.finditer(text):
        # Two of one name are kept or dropped together.
        functions[match[1]] = functions.get(match[1], frozenset()) | _names(match[0].partition("(")[2])
    return _Part(text, _names(_FUNCTION.sub("", text)), functions)


@functools.cache
def assemble(name: str, *, locked: bool) -> str:
    """Return the text of `lua/<name>.lua` behind its parts, core first.

    `locked`: a rebuild refuses it, by the part `rebuild_lock`.
    """
    parts: dict[str, _Part] = {}
    for always in ("core", "rebuild_lock") if locked else ("core",):
        parts[always] = _part("lib", f"{always}.lua")
    body = _part(f"{name}.lua")
    _add_parts(parts, body)
    texts = [*parts.values(), body]
    called = _called(texts)
    kept = [_FUNCTION.sub(lambda match: match[0] if match[1] in called else "", one.text) for one in texts]
    # The semicolon ends the statement in front of it, which would otherwise go on as a call.
    return "\n".join(_BLOCK.sub(r";(function()\n\1end)()\n", text) for text in kept)


def _add_parts(parts: dict[str, _Part], user: _Part) -> None:
    """Add the parts of `lua/lib` that a file uses, each after the parts that it uses itself."""
    uses = _USES.search(user.text)
    for name in uses[1].split() if uses else ():
        if name not in parts:
            part = _part("lib", f"{name}.lua")
            _add_parts(parts, part)
            parts[name] = part


def _called(parts: Sequence[_Part]) -> set[str]:
    """Return the names that code outside of functions uses, or functions that it uses, in any part."""
    uses: dict[str, frozenset[str]] = {}
    for part in parts:
        for name, used in part.functions.items():
            uses[name] = uses.get(name, frozenset()) | used
    called: set[str] = set()
    found = {name for name in uses if name.startswith(FOUND_BY_DATA)}.union(*(part.names for part in parts))
    while found:
        called |= found
        found = set().union(*(uses[name] for name in found & uses.keys())) - called
    return called
