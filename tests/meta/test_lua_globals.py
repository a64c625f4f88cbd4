"""No transition reads or writes a global by mistake: fakeredis takes a misspelt name for nil, and so hides typos.

Lua's own compiler tells: in the byte code of Lua 5.1 every access to a global is an instruction of its own. That also
finds a function that is called above its definition.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from lupa.lua51 import LuaRuntime  # type: ignore[import-untyped] # it has no stubs

from tests.lua_source import FUNCTION, Script, read_scripts

SCRIPTS = read_scripts(Path(__file__).resolve().parents[2] / "lua")
OFFERED: Final = {
    "ARGV", "KEYS", "cjson", "error", "ipairs", "math", "next", "pairs", "redis", "select", "setmetatable", "string",
    "pcall", "table", "tonumber", "tostring", "type", "unpack",
}  # fmt: skip
"""Globals of a Redis script that all servers offer."""
GETGLOBAL: Final = 5
SETGLOBAL: Final = 7


@dataclass
class ByteCode:
    """Reads a dumped Lua 5.1 function; `globals` are the names that it and its inner functions access."""

    data: bytes
    at: int = 12  # behind the file header
    globals: set[str] = field(default_factory=set)

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
        for _ in self.each():
            self.text()  # a local
            self.at += 8
        for _ in self.each():
            self.text()  # an upvalue


def globals_of(code: str) -> set[str]:
    dump = LuaRuntime(encoding=None).execute(b"return string.dump(assert(loadstring(...)))", code.encode())
    reader = ByteCode(dump)
    reader.function()
    assert reader.at == len(dump)
    return reader.globals


def reached_code(script: Script) -> str:
    """Return a transition behind its library files, without the functions that it never reaches."""

    def keep(match: re.Match[str]) -> str:
        return match[0] if match[1] in script.reached else ""

    library = "\n".join(script.library[file].body for file in script.uses)
    return FUNCTION.sub(keep, library) + script.body


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_transition_uses_no_global_that_redis_does_not_offer(name: str) -> None:
    assert globals_of(reached_code(SCRIPTS[name])) - OFFERED == set()


def test_a_misspelt_name_is_found_in_an_inner_function() -> None:
    code = "local count = 1\nlocal function f()\n  return function() return cuont end\nend\nreturn f"
    assert globals_of(code) == {"cuont"}


def test_a_function_called_above_its_definition_is_found() -> None:
    assert globals_of("local function a() return b() end\nlocal function b() end") == {"b"}


def test_an_assignment_that_lacks_its_local_is_found() -> None:
    assert globals_of("x = 1") == {"x"}
