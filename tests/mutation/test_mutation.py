"""The tool finds the conditions of a script, and what it makes of them is Lua."""

import pytest
from lupa.lua51 import LuaRuntime  # type: ignore[import-untyped] # it has no stubs

from tests.mutation.mutants import LUA, accepted, conditions, files, instrument, mutants_of

EXAMPLE = """
-- if this were a condition then
if a and f(b or c) then
  while x do y = 'if no then' end
elseif d then
end
"""


def test_conditions_and_their_operands_are_found() -> None:
    found = list(conditions("example", EXAMPLE))
    assert [EXAMPLE[c.start : c.end].strip() for c in found] == ["a and f(b or c)", "x", "d"]
    assert [[EXAMPLE[start:end].strip() for start, end in c.operands] for c in found] == [["a", "f(b or c)"], [], []]
    assert [c.line for c in found] == [3, 4, 5]


def test_no_loop_is_made_endless() -> None:
    loop = next(c for c in conditions("example", EXAMPLE) if c.loops)
    assert [mutant.value for mutant in mutants_of(loop)] == ["false"]


def test_each_accepted_change_has_a_reason() -> None:
    reasons = accepted()
    assert ("lib/edges", "change ~= 0: `change ~= 0` is true") in reasons
    assert [change for change, reason in reasons.items() if not reason.endswith(".")] == []


@pytest.mark.parametrize("file", files())
def test_changed_scripts_are_lua(file: str) -> None:
    text = LUA.joinpath(f"{file}.lua").read_text("utf-8")
    found = list(conditions(file, text))
    compiles = LuaRuntime().eval("function(text) return loadstring(text) ~= nil end")
    assert compiles(instrument(text, list(enumerate(found))))
    for condition in found:
        for mutant in mutants_of(condition):
            assert compiles(mutant.apply(text)), mutant.describe(text)
