"""A script has the functions that it may call, and no others: Redis makes each one again at every call."""

import re

import pytest

from tests.lua_names import names_taken
from tests.lua_source import COMMENT, SCRIPTS
from workron.redis import script_source
from workron.redis.script_source import FOUND_BY_DATA, assemble
from workron.redis.scripts import Script

DEFINED = re.compile(r"^(?:local )?function ([\w.]+)\(", re.MULTILINE)


def names_in(text: str) -> list[str]:
    return re.findall(r"(?<![\w.])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", COMMENT.sub(lambda match: match[1] or "", text))


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_function_of_a_script_is_used_in_it(name: str) -> None:
    text = assemble(name, locked=True)
    used = names_in(text)
    defined = DEFINED.findall(text)
    assert [one for one in defined if used.count(one) < 2 and not one.startswith(FOUND_BY_DATA)] == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_function_that_a_script_uses_is_left_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = assemble(name, locked=True)
    monkeypatch.setattr(script_source, "_called", lambda parts: {one for part in parts for one in part.functions})
    script_source.forget()
    whole = assemble(name, locked=True)
    script_source.forget()
    left_out = set(DEFINED.findall(whole)) - set(DEFINED.findall(text))
    assert left_out.isdisjoint(names_in(text))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_as_it_is_sent_takes_no_name_from_outside(name: str) -> None:
    """Lua's compiler tells: it shares nothing with the search for names that leaves functions out."""
    assert names_taken(Script.load(name, shebang=False).source.decode()) == set()


def test_a_short_script_does_not_make_the_functions_of_long_ones() -> None:
    text = assemble("queue_limit", locked=True)
    assert len(DEFINED.findall(text)) < 5
    assert len(DEFINED.findall(assemble("attempt_finish", locked=True))) > 100


def test_the_block_of_a_part_becomes_a_function_and_no_line_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Created in a function, a function finds what it captures at once, not by a search through all captured locals."""
    files = {
        ("lib", "core.lua"): "local P = KEYS[1]\n",
        ("lib", "rebuild_lock.lua"): "do\n  if P == '' then\n    return 'LOCKED'\n  end\nend\n",
        ("lib", "part.lua"): "local PART = {}\n\ndo\n\nfunction PART.f()\n  return P\nend\n\nend\n",
        ("x.lua",): "-- uses: part\nreturn PART.f()\n",
    }
    monkeypatch.setattr(script_source, "_text", lambda *path: files[path])
    script_source.forget()
    text = assemble("x", locked=True)
    script_source.forget()
    block = files["lib", "part.lua"].replace("\ndo\n", "\n;(function()\n").removesuffix("end\n") + "end)()\n"
    assert text == "\n".join((files["lib", "core.lua"], files["lib", "rebuild_lock.lua"], block, files["x.lua",]))


def test_every_part_with_a_table_is_created_in_a_function() -> None:
    assert "\ndo\n\n" not in assemble("attempt_finish", locked=True)
    assert assemble("attempt_finish", locked=True).count("\nend)()\n") > 15


def test_a_name_behind_two_dashes_in_a_string_was_taken_for_a_comment(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        ("lib", "core.lua"): "local function f()\nend\n\nlocal function g()\nend\n",
        ("x.lua",): "local a = '--' .. f() -- g\n",
    }
    monkeypatch.setattr(script_source, "_text", lambda *path: files[path])
    script_source.forget()
    text = assemble("x", locked=False)
    script_source.forget()
    assert DEFINED.findall(text) == ["f"]
