"""Formats that Python and Lua share: what one writes, the other reads."""

import re
from pathlib import Path
from typing import Final

from workron.redis.formats import Hook

LUA: Final = Path(__file__).resolve().parents[2] / "lua"


def test_both_know_the_same_hooks_and_none_is_a_part_of_another_one() -> None:
    """They were letters whose order mattered, and whoever appended one decided it."""
    text = (LUA / "lib" / "core.lua").read_text()
    [order] = re.findall(r"^local ORDER, .* = \{ (.*) \}, \{\}$", text, re.MULTILINE)
    assert sorted(word.strip("' ") for word in order.split(",")) == sorted(Hook)
    assert [(one, other) for one in Hook for other in Hook if one is not other and one in other] == []
