"""Comments, docstrings and messages of the product and its scripts, and names of tests, use plain words."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
WORDS: Final = re.compile(
    r"(?<!`)\b(nobody|whoever|anew|beside|lengths? of time|(is|are) told|who (is|are|has|have|asks|comes|waits))\b",
    re.IGNORECASE,
)
NAMES: Final = re.compile(
    r"_(who|whoever|nobody\w*|somebody|everybody|anew|beside|told|said|wish(es)?|as_may|than_may|once_more|suspects?)(_|$)"
    r"|_(those_(that|who)|lengths?_of_time|can_not|upkeep|scarcity|let_go|beats|beating)(_|$)|test_those_"
)
"""What names of tests do not contain: `test_a_worker_that_waits_…` instead of `test_who_waits_…`."""
EMPTY: Final = re.compile(r"_(closely|between|found|reviewed|misc|more|others?|over|things|various)(_|$)")
"""Words at the place of a subject in the name of a test's file."""
ROOMS: Final = ("api", "workers", "reaper", "workron", "bench", "tools")
LUA_COMMENT: Final = re.compile(r"""('(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")|--(.*)""")
"""A string, which may contain `--`, or a comment."""


def texts(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def test_the_words_of_the_product_are_plain() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word[0]}"
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        for line, text in texts(path.read_text())
        for word in WORDS.finditer(text)
    ]
    assert found == []


def lua_comments(source: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(source.splitlines(), 1):
        for match in LUA_COMMENT.finditer(line):
            if match[2]:
                yield number, match[2]


def test_the_words_of_the_scripts_comments_are_plain() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word[0]}"
        for path in sorted((ROOT / "lua").rglob("*.lua"))
        for line, text in lua_comments(path.read_text())
        for word in WORDS.finditer(text)
    ]
    assert found == []


def test_a_comment_of_lua_is_found_and_a_string_is_none() -> None:
    source = "-- name: one.\nlocal x = 'nobody -- beside' -- two\nlocal y = \"--\"\n"
    assert list(lua_comments(source)) == [(1, " name: one."), (2, " two")]


def test_a_word_of_the_list_is_found() -> None:
    assert [line for line, text in texts("x = 1  # nobody\n'beside `beside`'\n") for _ in WORDS.finditer(text)] == [
        2,
        1,
    ]


def names_of_tests(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.lineno, node.name


def test_the_names_of_tests_are_plain_english() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for line, name in names_of_tests(path.read_text())
        if NAMES.search(name)
    ]
    assert found == []


def test_files_of_tests_are_named_by_their_subject() -> None:
    names = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "tests").rglob("*.py"))]
    assert [name for name in names if EMPTY.search(Path(name).stem) or NAMES.search(f"_{Path(name).stem}")] == []


def test_a_name_with_a_word_of_the_list_is_found() -> None:
    source = "def test_who_waits(): ...\nasync def test_it_is_told(): ...\ndef test_a_whole_job(): ...\n"
    assert [name for _, name in names_of_tests(source) if NAMES.search(name)] == ["test_who_waits", "test_it_is_told"]
    assert EMPTY.search("test_jobs_closely")
