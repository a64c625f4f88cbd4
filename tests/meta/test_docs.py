"""Every command that the documents show does what they say, in the order in which a reader would try them."""

import os
import re
import shlex
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.doc_commands import Command, CommandError, Shell, commands
from tests.local_stack import ROOT, environment, running

DOCUMENTS = ["README.md", "docs/jobs.md", "docs/operations.md", "examples/stdlib-audit/README.md"]
REASONS = {"needs a container engine", "is the test run itself", "needs a server of your own"}
COMMAND_S = 300
UP = re.compile(r"(uv run )?workron up\b")

SAMPLE = """\
# A sample

```console
$ echo one
one
$ echo 'two
> lines' | cat
two
lines
```

```python
$ not a command
```

1. In a list:

   ```sh
   # a comment
   cat <<END
   $ text
   END

   for i in 1 2; do
     echo $i
   done
   echo a \\
     b
   ```

<!-- not run: needs a container engine -->
```sh
docker compose up
```

<!-- exits: 3 -->

```console
$ exit_with() { return $1; }; exit_with 3
```

<!-- exits: 3 -->
Text in between takes the marker's effect away.

```sh
true
```
"""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_of_the_document_works(document: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    shown = commands((ROOT / document).read_text())
    assert {command.not_run for command in shown} - {None} <= REASONS
    folder = tmp_path_factory.mktemp("docs")  # short, as a reader's is: else the server's socket lies elsewhere
    env = environment(folder / "home")
    with ExitStack() as stack:
        if not any(UP.match(command.text) for command in shown):
            stack.enter_context(running(["workron", "up"], env))
        shell = stack.enter_context(Shell(ROOT, env, folder / "output"))
        for command in shown:
            if command.not_run is None:
                run_as_reader(command, shell, env, stack)


def run_as_reader(command: Command, shell: Shell, env: dict[str, str], stack: ExitStack) -> None:
    """Run a command; `workron up` goes on in a terminal of its own, and the default port is a free one."""
    text = re.sub(r"\b8080\b", env["WORKRON_PORT"], command.text)
    if UP.match(text):
        stack.enter_context(running(shlex.split(text), env))
    else:
        shell.run(Command(text, command.line, command.exits), COMMAND_S)


def test_the_commands_of_a_document_are_found() -> None:
    assert [(command.line, command.text) for command in commands(SAMPLE)] == [
        (4, "echo one"),
        (6, "echo 'two\nlines' | cat"),
        (20, "cat <<END\n$ text\nEND"),
        (24, "for i in 1 2; do\n  echo $i\ndone"),
        (27, "echo a \\\n  b"),
        (33, "docker compose up"),
        (39, "exit_with() { return $1; }; exit_with 3"),
        (46, "true"),
    ]


def test_markers_apply_to_the_block_that_follows() -> None:
    marked = {command.text.split()[0]: command for command in commands(SAMPLE)}
    assert marked["docker"].not_run == "needs a container engine"
    assert marked["exit_with()"].exits == 3
    assert marked["true"] == Command("true", 46)


def test_a_command_without_an_end_is_an_error() -> None:
    with pytest.raises(ValueError, match="line 2: the command has no end"):
        commands("```sh\necho 'open\n```\n")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path, os.environ, tmp_path / "output")


def test_the_sample_runs_from_end_to_end(shell: Shell) -> None:
    with shell:
        printed = [shell.run(each, 20) for each in commands(SAMPLE) if each.not_run is None]
    assert printed == ["one\n", "two\nlines\n", "$ text\n", "1\n2\n", "a b\n", "", ""]


def test_variables_and_folders_carry_over(shell: Shell) -> None:
    with shell:
        shell.run(Command("id=$(echo 7); cd /", 1), 20)
        assert shell.run(Command('echo "$id $PWD"', 2), 20) == "7 /\n"


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (Command("echo why; false", 12), "line 12: `echo why; false` exits with 1, not 0:\nwhy"),
        (Command("true", 12, exits=2), "exits with 0, not 2"),
        (Command("exit 0", 12), "exits with -1"),
        (Command("sleep 30", 12), "goes on after 0.2 s"),
        (Command("cat | grep input", 12), "exits with 1"),
    ],
)
def test_a_command_that_does_otherwise_is_reported(shell: Shell, command: Command, problem: str) -> None:
    timeout_s = 0.2 if "sleep" in command.text else 20
    with shell, pytest.raises(CommandError) as failure:
        shell.run(command, timeout_s)
    assert problem in str(failure.value)
