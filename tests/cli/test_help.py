"""What the command line says of itself."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from tests.command_line import CommandLine
from workron import __version__
from workron.cli.app import app
from workron.cli.command import Group
from workron.cli.exits import MEANING, Exit

SLOW = {"rich", "httpx2", "pydantic", "redis", "fastapi", "yaml"}


def commands(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)
        else:
            assert command is not None
            yield (*path, name), command


ALL = dict(commands(app))


def test_help_names_every_command_and_every_exit_code(alone: CommandLine) -> None:
    ran = alone("--help")

    assert (ran.code, ran.err) == (0, "")
    for path in ALL:
        assert re.search(rf"^  {path[0]} ", ran.out, re.MULTILINE)
    for code in Exit:
        assert re.search(rf"^  {code:d} ", ran.out, re.MULTILINE)
    assert set(MEANING) == set(Exit)


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_the_help_of_every_command_ends_with_examples_that_can_be_parsed(path: tuple[str, ...]) -> None:
    examples = (ALL[path].epilog or "").splitlines()

    assert examples
    for example in examples:
        assert len(example) <= 100
        for words in invocations(example):
            with app.make_context("workron", words[1:]) as context:
                while isinstance(group := context.command, click.Group):
                    name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])
                    context = command.make_context(name, rest, parent=context)


def invocations(example: str) -> Iterator[list[str]]:
    """Yield the words of each `workron …` in an example."""
    example = re.sub(r"\$\((workron [^)]*)\)", r"x ; \1 ;", example)
    lexer = shlex.shlex(example, posix=True, punctuation_chars="|;&")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if set(word) <= set("|;&"):
            while words and "=" in words[0]:
                words.pop(0)
            if words and words[0] == "workron":
                yield words
            words = []
        else:
            words.append(word)


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_the_summary_of_a_command_is_the_first_sentence_of_its_help(path: tuple[str, ...]) -> None:
    group: click.Group = app
    for name in path[:-1]:
        group = group.get_command(click.Context(group), name)  # type: ignore[assignment]  # a group by its place
    assert isinstance(group, Group)

    (summary,) = [places[path[-1]][1] for places in group.sections.values() if path[-1] in places]  # type: ignore[index]

    assert summary == ALL[path].get_short_help_str(1000)


def test_defining_the_commands_imports_nothing_slow() -> None:
    code = f"import sys, workron.cli.app; print(*({SLOW!r} & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "\n"


@pytest.mark.parametrize(("word", "most"), [("--version", 60), ("--help", 140)])
def test_help_and_version_import_little(alone: CommandLine, word: str, most: int) -> None:
    """It was measured in seconds, and failed on a slow machine. Today they import 43 and 111 modules."""
    ran = alone(word, PYTHONPROFILEIMPORTTIME="1")
    imported = [line for line in ran.err.splitlines() if line.startswith("import time:")]

    assert ran.code == 0
    assert word != "--version" or ran.out == f"workron {__version__}\n"
    assert 10 < len(imported) < most


def test_a_misspelt_command_is_a_usage_error_with_a_suggestion(alone: CommandLine) -> None:
    ran = alone("sbmit")

    assert (ran.code, ran.out) == (2, "")
    assert "Did you mean 'submit'?" in ran.err


def test_wrong_options_are_usage_errors(alone: CommandLine) -> None:
    for args, expected in {
        ("ls", "--limit", "many"): "'many' is not a whole number",
        ("ls", "--limit", "0"): "at least 1",
        ("ls", "--status", "lost"): "'lost' is not one of 'scheduled', 'blocked'",
        ("ls", "-o", "xml"): "'xml' is not one of 'table', 'json', 'jsonl'",
        ("show",): "Missing argument 'ID'",
        ("submit",): "Missing argument 'COMMAND...'",
        ("logs", "--frobnicate", "x"): "No such option",
    }.items():
        ran = alone(*args)
        assert (ran.code, ran.out) == (2, ""), args
        assert expected in ran.err, args
