"""A line ends in a line feed, and in nothing else that some library calls a line's end."""

import ast

import pytest

from tests.meta.test_layout import FILES, name_of
from workron.cli.text import printable_lines
from workron.lines import lines_of
from workron.models.text import first_line

OTHER_ENDS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\r"
BYTES_ONLY = "workers/command_files.py"
"""Bytes are split at line feeds and carriage returns alone."""


@pytest.mark.parametrize("char", OTHER_ENDS, ids=ascii)
def test_other_characters_do_not_end_a_line(char: str) -> None:
    assert lines_of(f"a{char}b\nc\n") == [f"a{char}b", "c"]
    assert printable_lines(f"a{char}b\nc").count("\n") == 1
    assert "\n" not in first_line(f"50%{char} of it\nmore")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("\n", [""]),
        ("a", ["a"]),
        ("a\n", ["a"]),
        ("a\r\nb\r\n", ["a", "b"]),
        ("\n\na\n\n", ["", "", "a", ""]),
    ],
)
def test_lines_end_in_a_line_feed(text: str, lines: list[str]) -> None:
    assert lines_of(text) == lines


def test_nothing_splits_text_at_what_python_calls_line_ends() -> None:
    rooms = ("workron/", "api/", "workers/", "reaper/")
    calls = [
        f"{name_of(path)}:{node.lineno}"
        for path in FILES
        if path.suffix == ".py" and name_of(path).startswith(rooms) and name_of(path) != BYTES_ONLY
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "splitlines"
    ]
    assert calls == []
