"""A reply of a script that its caller does not know is an error, and never passed over."""

import ast

from tests.local_stack import ROOT
from tests.meta.test_layout import PRODUCT, name_of

SCRIPTS = {path.stem for path in (ROOT / "lua").glob("*.lua")}


def matches_without_default(code: str) -> list[int]:
    """Return the lines of `match` statements on a script's reply that have no arm for all else."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Match)
        and any(word in ast.unparse(node.subject) for word in ("_scripts.", "reply"))
        and not (isinstance(last := node.cases[-1].pattern, ast.MatchAs) and last.pattern is None)
    ]


def test_each_match_on_a_reply_has_an_arm_for_what_it_does_not_know() -> None:
    found = {(name_of(path), line) for path in PRODUCT for line in matches_without_default(path.read_text())}
    assert found == set()


def test_the_rule_finds_a_match_without_that_arm() -> None:
    code = "match await self._scripts.x():\n    case [b'A']:\n        pass\n"
    assert matches_without_default(code) == [1]
    assert matches_without_default(code + "    case reply:\n        raise ValueError\n") == []


def scripts_named(code: str) -> list[str]:
    """Return the names of scripts in errors about an unknown reply."""
    return [
        node.args[0].value
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"UnknownReply", "_not_this_run"}
        and isinstance(node.args[0], ast.Constant)
    ]


def test_the_error_of_an_unknown_reply_names_a_script_that_exists() -> None:
    """After the scripts were renamed, errors named files like lua/fire.lua."""
    found = [(name_of(path), name) for path in PRODUCT for name in scripts_named(path.read_text())]
    assert len(found) > 15
    assert [(file, name) for file, name in found if name not in SCRIPTS] == []
