"""The header of every transition tells the truth about its body, and every answer is handled in Python."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lua_source import LUA, SLOT, Script, Source, read_scripts, replaced, upper_words

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = read_scripts(LUA)
TYPES = {"HASH", "LIST", "SET", "ZSET", "STRING", "STREAM"}
SHARED_KEYS = {1, 2}
"""meta and guard: the same for every script, described in lua/README.md."""


def check(script: Script) -> list[str]:
    """Return everything in which header and body disagree, in words."""
    return [
        problem
        for rule in (
            operation_problems,
            hook_problems,
            slot_problems,
            key_problems,
            argument_problems,
            name_problems,
            tail_problems,
            reply_problems,
        )
        for problem in rule(script)
    ]


def operation_problems(script: Script) -> Iterator[str]:
    if not re.match(rf"-- {re.escape(script.name)}: \S", script.header[0] if script.header else ""):
        yield f"the first line is not `-- {script.name}: what it does`"


def hook_problems(script: Script) -> Iterator[str]:
    """A script that moves jobs has to know all lifecycle hooks, else what jobs hold is lost or kept for ever."""
    if "call_hooks" in script.reached_by_itself:
        for file, part in script.library.items():
            if file not in script.parts and re.search(r"^function HOOKS\.", part.body, re.MULTILINE):
                yield f"moves jobs, but does not use lib/{file}, which has lifecycle hooks"


def slot_problems(script: Script) -> Iterator[str]:
    for line in script.header:
        if re.match(r"-- *(KEYS|ARGV)\b", line) and not SLOT.fullmatch(line) and "KEYS[1..2]" not in line:
            yield f"can't read `{line}`: it must be `-- ARGV[1]  name  what it is, with its unit`"
    for table, slots in script.slots.items():
        first = 3 if table == "KEYS" else 1
        numbers = [slot.index for slot in slots]
        if numbers != list(range(first, first + len(numbers))):
            yield f"{table} are numbered {numbers}"
        if any(slot.tail for slot in slots[:-1]):
            yield f"{table}: only the last one can repeat"
        for slot in slots:
            if slot.name.endswith("_ms") and not re.search(r"\bms\b", slot.text):
                yield f"{table}[{slot.index}] {slot.name}: the unit (ms) is missing"
    for slot in script.slots["KEYS"]:
        if slot.text.split()[0] not in TYPES:
            yield f"KEYS[{slot.index}] {slot.name}: its type is none of {', '.join(sorted(TYPES))}"


def key_problems(script: Script) -> Iterator[str]:
    documented = {slot.index for slot in script.slots["KEYS"]}
    yield from differences("KEYS", documented, script.indices("KEYS") - SHARED_KEYS)


def argument_problems(script: Script) -> Iterator[str]:
    documented = {slot.index for slot in script.slots["ARGV"] if not slot.tail}
    repeated = {slot.index for slot in script.slots["ARGV"] if slot.tail}  # its start may be looked at directly
    yield from differences("ARGV", documented, script.indices("ARGV") - repeated)


def differences(table: str, documented: set[int], used: set[int]) -> Iterator[str]:
    for index in sorted(used - documented):
        yield f"the body takes {table}[{index}], which the header does not name"
    for index in sorted(documented - used):
        yield f"the header names {table}[{index}], which the body never takes"


def name_problems(script: Script) -> Iterator[str]:
    names = {slot.index: slot.name for slot in script.slots["ARGV"]}
    for local_name, index in script.named:
        if index in names and names[index] != local_name:
            yield f"ARGV[{index}] is `{names[index]}` in the header and `{local_name}` in the body"


def tail_problems(script: Script) -> Iterator[str]:
    tails = [slot for slot in script.slots["ARGV"] if slot.tail]
    starts = {script.loop[0]} if script.loop else script.library_tails
    if starts != {tail.index for tail in tails}:
        yield f"repeated ARGV start at {sorted(starts)} in the body, at {[t.index for t in tails]} in the header"
    elif tails and script.loop:
        width = tails[0].width
        if width not in (None, script.loop[1]):
            yield f"ARGV[{tails[0].index}..]: the header names {width} per element, the body steps by {script.loop[1]}"
        elif script.offsets and width and script.offsets != set(range(width)):
            yield f"ARGV[{tails[0].index}..]: of the {width} per element, the body takes {sorted(script.offsets)}"


def reply_problems(script: Script) -> Iterator[str]:
    if not script.returns:
        yield "`-- Returns` is missing"
        return
    documented = words_of(script)
    for word in sorted(script.replies - documented):
        yield f"the body answers {word}, which is not under Returns"
    for word in sorted({each for each in documented if each.isupper()} - script.replies):
        yield f"{word} stands under Returns, but the body never answers it"
    items = {each for each in documented if each.islower()}
    if items and items != script.item_words:
        yield f"under Returns stand {sorted(items)}, the body answers {sorted(script.item_words)}"


def words_of(script: Script) -> set[str]:
    """Return the words under Returns, with those of a script that it refers to by `(see NAME)`."""
    words = set(re.findall(r'"([A-Za-z_]+)"', script.returns))
    for name in re.findall(r"\(see (\w+)\)", script.returns):
        words |= words_of(SCRIPTS[name])
    return words


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_header_says_what_the_body_does(name: str) -> None:
    problems = check(SCRIPTS[name])
    assert not problems, f"lua/{name}.lua:\n  " + "\n  ".join(problems)


@pytest.mark.parametrize("name", SCRIPTS)
def test_python_distinguishes_every_answer(name: str) -> None:
    modules = [path.read_text() for path in (ROOT / "workron").rglob("*.py")]
    callers = [module for module in modules if re.search(rf"\bself\._?scripts\.{name}\b", module)]
    assert callers, f"nothing calls lua/{name}.lua"
    words = status_words(SCRIPTS[name])
    missing = words - set().union(*(texts(module) for module in callers))
    # One of two is told by the other, and a single one needs no telling.
    assert len(missing) <= (1 if len(words) <= 2 else 0), (
        f"answers of lua/{name}.lua that its callers do not know: {sorted(missing)}"
    )


def status_words(script: Script) -> set[str]:
    """Return the words that begin a reply, or an element of one, with those of a script it refers to."""
    starts = re.findall(r"\{([^,}]*)", script.returns)
    words = {word for start in starts for word in re.findall(r'"([A-Z_]+)"', start)}
    for name in re.findall(r"\(see (\w+)\)", script.returns):
        words |= status_words(SCRIPTS[name])
    return words


def texts(code: str) -> set[str]:
    """Return the values of all string and bytes literals."""
    nodes = [node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant)]
    return {each.decode() if isinstance(each, bytes) else each for each in nodes if isinstance(each, str | bytes)}


LIBRARY = {
    "core": Source("core", "local function read(id)\n  return redis.call('HGETALL', id)\nend\n"),
    "more": Source("more", "local function parse(at)\n  return ARGV[at] and 'LATE'\nend\n"),
}
GOOD = """\
-- move: move jobs.
--
-- KEYS[3]  queue  HASH  the queue
-- ARGV[1]  lease_ms  length of the lease, ms
-- ARGV[2..]  jobs  id, fence
--
-- Returns {"MOVED", n} or {"NONE"}

local lease_ms = tonumber(ARGV[1])
for at = 2, #ARGV, 2 do
  redis.call('HSET', KEYS[3], ARGV[at], ARGV[at + 1], 'NX') -- ARGV[9] is only in a comment
end
return { read(KEYS[1]) and 'MOVED' or 'NONE' }
"""


def test_the_checker_accepts_a_true_header() -> None:
    assert check(Script("move", GOOD, LIBRARY)) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (replaced("-- move: move", "-- claim: move"), "the first line"),
        (replaced("  HASH  the", "  the"), "its type is none of"),
        (replaced("KEYS[3], ARGV", "KEYS[4], ARGV"), "the body takes KEYS[4]"),
        (replaced("KEYS[3], ARGV", "KEYS[4], ARGV"), "the header names KEYS[3]"),
        (replaced("the lease, ms", "the lease"), "the unit (ms) is missing"),
        (replaced("-- ARGV[2..]", "-- ARGV[3..]"), "ARGV are numbered [1, 3]"),
        (replaced("tonumber(ARGV[1])", "30"), "the header names ARGV[1]"),
        (replaced("tonumber(ARGV[1])", "ARGV[1], ARGV[7]"), "the body takes ARGV[7]"),
        (replaced("local lease_ms", "local limit"), "`lease_ms` in the header and `limit` in the body"),
        (replaced("id, fence", "id, fence (a, b), reason"), "names 3 per element, the body steps by 2"),
        (replaced("ARGV[at + 1], ", ""), "the body takes [0]"),
        (replaced("for at = 2", "for at = 3"), "repeated ARGV start at [3]"),
        (replaced("-- ARGV[2..]  jobs  id, fence\n", ""), "repeated ARGV start at [2]"),
        (replaced("-- ARGV[2..]  jobs", "-- ARGV[2..] jobs"), "can't read"),
        (replaced("'NONE' }", "'EMPTY' }"), "the body answers EMPTY"),
        (replaced("'NONE' }", "'EMPTY' }"), "NONE stands under Returns"),
        (replaced("-- Returns", "-- Gives"), "`-- Returns` is missing"),
        (replaced('{"NONE"}', '{"NONE", "ok"}'), "under Returns stand ['ok']"),
    ],
)
def test_the_checker_finds_what_is_wrong(change: Callable[[str], str], problem: str) -> None:
    assert any(problem in found for found in check(Script("move", change(GOOD), LIBRARY)))


def test_words_that_a_library_function_returns_count_as_answers() -> None:
    text = GOOD.replace("move jobs.\n", "move jobs.\n-- uses: more\n").replace("read(KEYS[1])", "parse(2)")
    assert "LATE" in Script("move", text, LIBRARY).replies


def test_command_names_are_no_answers() -> None:
    assert upper_words("'HSET'") == {"HSET"}
    assert Script("move", GOOD, LIBRARY).replies == {"MOVED", "NONE"}
