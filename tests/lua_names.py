"""The names that a Lua text takes from outside, and those that it gives: Lua's own compiler tells.

In the byte code of Lua 5.1 every access to a global is an instruction of its own. For the compiler of one text alone, a
name that the parts in front of it have is a global, too.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from lupa.lua51 import LuaRuntime  # type: ignore[import-untyped] # it has no stubs

OFFERED: Final = {
    "ARGV", "KEYS", "cjson", "error", "ipairs", "math", "next", "pairs", "redis", "select", "setmetatable", "string",
    "pcall", "table", "tonumber", "tostring", "type", "unpack",
}  # fmt: skip
"""Globals of a Redis script that all servers offer."""
GETGLOBAL: Final = 5
SETGLOBAL: Final = 7


@dataclass
class ByteCode:
    """Reads a dumped Lua 5.1 chunk."""

    data: bytes
    at: int = 12  # behind the file header
    globals: set[str] = field(default_factory=set)
    """Names that are global in the chunk or in a function of it."""
    locals: frozenset[str] = frozenset()
    """Locals that are there at the end of the chunk: what stands behind it in the same script can use them."""

    def take(self, layout: str) -> int:
        (value,) = struct.unpack_from(f"<{layout}", self.data, self.at)
        self.at += struct.calcsize(f"<{layout}")
        return int(value)

    def text(self) -> str:
        size = self.take("Q")
        self.at += size
        return self.data[self.at - size : self.at].rstrip(b"\0").decode()

    def each(self) -> Iterator[None]:
        yield from (None for _ in range(self.take("i")))

    def constant(self) -> str:
        match self.take("B"):
            case 1:
                self.at += 1
            case 3:
                self.at += 8
            case 4:
                return self.text()
        return ""

    def local(self, end: int) -> str:
        name = self.text()
        self.at += 4  # where it begins
        return name if self.take("i") >= end else ""

    def function(self) -> None:
        self.text()
        self.at += 2 * 4 + 4  # lines; upvalues, parameters, vararg, stack size
        code = [self.take("I") for _ in self.each()]
        constants = [self.constant() for _ in self.each()]
        for instruction in code:
            if instruction & 0x3F in (GETGLOBAL, SETGLOBAL):
                self.globals.add(constants[instruction >> 14])
        for _ in self.each():
            self.function()
        for _ in self.each():
            self.at += 4  # line of an instruction
        self.locals = frozenset(self.local(len(code) - 1) for _ in self.each()) - {""}  # the chunk's come last
        for _ in self.each():
            self.text()  # an upvalue


def compiled(code: str) -> ByteCode:
    dump = LuaRuntime(encoding=None).execute(b"return string.dump(assert(loadstring(...)))", code.encode())
    reader = ByteCode(dump)
    reader.function()
    assert reader.at == len(dump)
    return reader


def names_taken(code: str) -> set[str]:
    """Return the names that a text takes from what stands in front of it."""
    return compiled(code).globals - OFFERED


def names_given(code: str) -> frozenset[str]:
    """Return the names that a text has for what stands behind it."""
    return compiled(code).locals
