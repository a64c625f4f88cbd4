"""A script or part says of which parts it uses a name, and takes no other name from outside; its functions are short.

fakeredis takes a misspelt name for nil, and so hides typos. A call of a function above its definition is found, too.
"""

import re
from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.lua_names import names_given, names_taken
from tests.lua_source import LUA, Source, read_library, read_scripts, replaced

LIBRARY = read_library(LUA)
MOST_LINES = 40
"""Of a function."""
FILES = {f"lib/{name}": part for name, part in LIBRARY.items()} | read_scripts(LUA)


def problems_of(source: Source, library: Mapping[str, Source]) -> Iterator[str]:
    """Yield in words what is wrong with the names that a text takes. `core` stands in front of all others."""
    for part in source.uses:
        if part not in library:
            yield f"there is no lua/lib/{part}.lua"
        elif part == "core":
            yield "core is always there"
    taken = names_taken(source.text)
    given = {part: names_given(library[part].text) for part in {"core", *source.uses} & library.keys()}
    for name in sorted(taken - frozenset().union(*given.values())):
        yield f"no part that it uses has `{name}`"
    for part in source.uses if taken else ():  # a text that takes none stands for others, as `jobs` does
        if given.get(part) and not taken & given[part]:
            yield f"uses lib/{part}, but no name of it"


@pytest.mark.parametrize("name", FILES)
def test_a_text_says_whose_names_it_takes(name: str) -> None:
    problems = list(problems_of(FILES[name], LIBRARY))
    assert not problems, f"lua/{name}.lua:\n  " + "\n  ".join(problems)


def test_no_name_stands_in_two_parts() -> None:
    owners: dict[str, str] = {}
    for part, source in LIBRARY.items():
        for name in names_given(source.text):
            assert name not in owners, f"{name} stands in lib/{part} and in lib/{owners[name]}"
            owners[name] = part


def functions_of(text: str) -> Iterator[tuple[str, int]]:
    """Yield the first line of each function, and how many lines it has: it ends at the first `end` of its own depth."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        depth = re.match(r"( *)(?!--).*\bfunction\b", line)
        if depth and not re.search(r"\bend\b", line):
            length = next(n for n, one in enumerate(lines[at:], 1) if re.match(depth[1] + r"end\b", one))
            yield line.strip(), length


@pytest.mark.parametrize("name", FILES)
def test_no_function_is_long(name: str) -> None:
    long = {line: length for line, length in functions_of(FILES[name].text) if length > MOST_LINES}
    assert not long, f"lua/{name}.lua: {long}"


def test_the_lines_of_a_function_are_counted() -> None:
    text = "local function a()\n  return 1\nend\n\ndo\n  local b = f(function()\n    if x then\n    end\n  end)\nend\n"
    assert list(functions_of(text)) == [("local function a()", 3), ("local b = f(function()", 4)]


PARTS = {
    "core": Source("core", "local function read(id)\n  return redis.call('HGETALL', id)\nend\n"),
    "more": Source("more", "local function parse(at)\n  return read(ARGV[at])\nend\n"),
}
GOOD = "-- move: move jobs.\n-- uses: more\n\nlocal job = parse(1)\nreturn job\n"


def test_the_checker_accepts_a_true_header() -> None:
    assert list(problems_of(Source("move", GOOD), PARTS)) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (replaced("uses: more", "uses: more other"), "there is no lua/lib/other.lua"),
        (replaced("uses: more", "uses: core more"), "core is always there"),
        (replaced("-- uses: more\n", ""), "no part that it uses has `parse`"),
        (replaced("parse(1)", "read(1)"), "uses lib/more, but no name of it"),
        (replaced("return job", "return function() return jbo end"), "no part that it uses has `jbo`"),
        (replaced("local job = parse", "job = parse"), "no part that it uses has `job`"),
        (replaced("return job", "local function a() return b(job) end\nlocal function b() end"), "has `b`"),
    ],
)
def test_the_checker_finds_what_is_wrong(change: Callable[[str], str], problem: str) -> None:
    assert any(problem in found for found in problems_of(Source("move", change(GOOD)), PARTS))


def test_names_inside_of_a_block_or_a_function_are_not_given() -> None:
    assert names_given("local a\ndo\n  local b = 1\n  function a() local c = b return c end\nend") == {"a"}
