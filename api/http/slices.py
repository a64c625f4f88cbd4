"""Splits large JSON into slices of some kilobytes, without parsing it as a whole.

Parsing and validating JSON holds the GIL for the duration of a call: half a second for ten megabytes. In
slices, in a thread, the event loop keeps running (`api/http/large.py`). A slice has whole members of one array or
object; a member too large for a slice is a separate node. Regular expressions that know only strings
and brackets find the ends of members: invalid JSON is found later, when each slice is parsed.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

WINDOW: Final = 32 * 1024
"""Size of a slice, bytes, unless one member is larger."""
_DEEPEST: Final = 100
_BRACKETS: Final = 8
"""Nesting levels known to the regular expressions; deeper values become nodes."""


def _nested(levels: int) -> bytes:
    return _container(_nested(levels - 1)) if levels else _container(rb"(?!)")


def _container(inner: bytes) -> bytes:
    return rb'[\[{](?:[^"\[\]{}]++|' + _TEXT + rb"|" + inner + rb")*+[\]}]"


_TEXT: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_ATOM: Final = rb'[^"\[\]{},:\s]++'
_ONE: Final = rb"(?:" + _TEXT + rb"|" + _nested(_BRACKETS) + rb"|" + _ATOM + rb")"
_ITEMS: Final = re.compile(rb"(?:\s*+" + _ONE + rb"\s*+,)++", re.DOTALL)
_FIELDS: Final = re.compile(rb"(?:\s*+" + _TEXT + rb"\s*+:\s*+" + _ONE + rb"\s*+,)++", re.DOTALL)
_WHOLE: Final = re.compile(_ONE, re.DOTALL)
_SCALAR: Final = re.compile(_TEXT + rb"|" + _ATOM, re.DOTALL)
_NAME: Final = re.compile(rb"\s*+(" + _TEXT + rb")\s*+:\s*+", re.DOTALL)
_SPACE: Final = re.compile(rb"\s*+")


class NoJsonError(ValueError):
    """The text is not JSON, or nested too deeply."""


@dataclass(slots=True)
class Node:
    """An array or an object: `raw[start:end]`, brackets included."""

    raw: bytes
    start: int
    end: int = 0
    name: str | None = None
    """Its name in the parent object."""
    parts: "list[tuple[int, int] | Node]" = field(default_factory=list)
    """Its members in order: slices (from, to) of several members, and nodes."""

    @property
    def is_array(self) -> bool:
        return self.raw[self.start] == _OPEN[0]

    def nodes(self) -> "Iterator[Node]":
        return (part for part in self.parts if isinstance(part, Node))

    def member(self, name: str) -> "Node | None":
        """Return the last node of this name."""
        return next((node for node in reversed(list(self.nodes())) if node.name == name), None)

    def wrapped(self, part: tuple[int, int]) -> bytes:
        """Return a slice as a separate array or object."""
        start, end = part
        return (b"[%b]" if self.is_array else b"{%b}") % self.raw[start:end]

    def load(self, part: tuple[int, int]) -> Any:
        """Return the members of a slice: a list or dict."""
        try:
            return orjson.loads(self.wrapped(part))
        except orjson.JSONDecodeError as error:
            raise NoJsonError(f"{error.msg} (after byte {part[0]:,})") from None


_OPEN: Final = b"[{"
_CLOSE: Final = {b"["[0]: b"]"[0], b"{"[0]: b"}"[0]}


def take_apart(raw: bytes) -> Node:
    """Return the array or object of this text; raise NoJsonError if it is not one."""
    start = _after_space(raw, 0)
    if raw[start : start + 1] not in (b"[", b"{"):
        raise NoJsonError("not an object")
    node = _take(raw, start, None, 0)
    if _after_space(raw, node.end) != len(raw):
        raise NoJsonError(f"trailing data (byte {node.end:,})")
    return node


def _take(raw: bytes, start: int, name: str | None, depth: int) -> Node:
    if depth > _DEEPEST:
        raise NoJsonError("nested too deeply")
    node, at, more = Node(raw, start, name=name), start + 1, False
    many = _ITEMS if node.is_array else _FIELDS
    while True:
        at = _after_space(raw, at)
        if raw[at : at + 1] in (b"]", b"}"):
            if raw[at] != _CLOSE[raw[start]] or more:
                raise NoJsonError(f"mismatched bracket (byte {at:,})")
            node.end = at + 1
            return node
        if found := many.match(raw, at, at + WINDOW):
            node.parts.append((at, found.end() - 1))
            at, more = found.end(), True
            continue
        at = _after_space(raw, _take_one(node, at, depth))
        if more := raw[at : at + 1] == b",":
            at += 1
        elif raw[at : at + 1] not in (b"]", b"}"):
            raise NoJsonError(f"expected a comma or a closing bracket (byte {at:,})")


def _take_one(node: Node, start: int, depth: int) -> int:
    """Add the member that begins here; return its end."""
    raw, at, name = node.raw, start, None
    if not node.is_array:
        if (named := _NAME.match(raw, at)) is None:
            raise NoJsonError(f"expected a name (byte {at:,})")
        at = named.end()
        try:
            name = orjson.loads(named[1])
        except orjson.JSONDecodeError as error:
            raise NoJsonError(f"{error.msg} (byte {start:,})") from None
    is_container = raw[at : at + 1] in (b"[", b"{")
    if whole := _WHOLE.match(raw, at, at + WINDOW) if is_container else _SCALAR.match(raw, at):
        node.parts.append((start, whole.end()))
        return whole.end()
    if not is_container:
        raise NoJsonError(f"expected a value (byte {at:,})")
    inner = _take(raw, at, name, depth + 1)
    node.parts.append(inner)
    return inner.end


def _after_space(raw: bytes, at: int) -> int:
    found = _SPACE.match(raw, at)
    return found.end() if found else at


def canonical(node: Node) -> Iterator[bytes]:
    """Yield the result of `orjson.dumps(orjson.loads(text), option=orjson.OPT_SORT_KEYS)`, piece by piece."""
    if node.is_array:
        yield b"["
        for number, part in enumerate(node.parts):
            yield b"," if number else b""
            if isinstance(part, Node):
                yield from canonical(part)
            else:
                yield orjson.dumps(node.load(part), option=orjson.OPT_SORT_KEYS)[1:-1]
        yield b"]"
        return
    members: dict[str, Any] = {}
    for part in node.parts:
        members |= {part.name or "": part} if isinstance(part, Node) else node.load(part)
    yield b"{"
    for number, (name, value) in enumerate(sorted(members.items())):
        yield (b"," if number else b"") + orjson.dumps(name) + b":"
        if isinstance(value, Node):
            yield from canonical(value)
        else:
            yield orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    yield b"}"
