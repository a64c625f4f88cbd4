"""No script reads a whole key, or loops until one is empty, unless its bound is written beside it: `-- bound: …`."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.local_stack import ROOT

WHOLE: Final = re.compile(
    r"'(?:SMEMBERS|HGETALL|HKEYS|HVALS)'"
    r"|'(?:LRANGE|ZRANGE|ZREVRANGE)',[^\n]*'0', '-1'"
    r"|'ZRANGEBYSCORE',(?![^\n]*'LIMIT')[^\n]*\)"
    r"|^\s*while \b|^\s*repeat\b",
    re.MULTILINE,
)
"""What may take as long as a key is large: whole reads, and loops that end when something runs out."""
BOUND: Final = re.compile(r"-- bound: \S")
FILES: Final = sorted((ROOT / "lua").rglob("*.lua"))


def unbounded(text: str) -> list[str]:
    """Return the lines that lack their bound, which stands on the line itself or on the comment above."""
    lines = text.splitlines()
    found = []
    for match in WHOLE.finditer(text):
        at = text.count("\n", 0, match.end())
        above = at - 1
        while above >= 0 and lines[above].lstrip().startswith("--") and not BOUND.search(lines[above]):
            above -= 1
        near = (lines[at], lines[above] if above >= 0 and lines[above].lstrip().startswith("--") else "")
        if not any(BOUND.search(line) for line in near):
            found.append(f"{at + 1}: {lines[at].strip()}")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_whole_reads_and_open_loops_say_what_bounds_them(path: Path) -> None:
    assert unbounded(path.read_text("utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [
        "local all = redis.call('ZRANGE', key, '0', '-1')",
        "redis.call('HGETALL', key)",
        "redis.call('SMEMBERS', key)",
        "redis.call('ZRANGEBYSCORE', key, '-inf', now)",
        "while id do",
        "repeat",
    ],
)
def test_a_line_without_its_bound_is_found(line: str) -> None:
    assert unbounded(line) == [f"1: {line}"]
    assert unbounded(f"{line} -- bound: one member a queue") == []
    assert unbounded(f"-- bound: one member a queue\n-- and more about it\n{line}") == []


def test_a_read_with_a_limit_needs_none() -> None:
    assert unbounded("redis.call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', '0', most)") == []
