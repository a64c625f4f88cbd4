"""The commands that a Markdown document shows, and a shell that runs them one after the other like a reader would.

Commands are the lines after `$ ` in ```console blocks, and all of a ```sh block. An HTML comment before a block
tells what a reader knows anyway: `<!-- not run: needs a container engine -->` or `<!-- exits: 3 -->`.
"""

import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

FENCE: Final = re.compile(r" *(```+|~~~+) *(\w*)")
MARKER: Final = re.compile(r" *<!-- (not run|exits): (.+?) -->")
LANGUAGES: Final = {"console", "sh", "shell", "bash"}


@dataclass(frozen=True)
class Command:
    """One command of a document; `not_run` is the reason why it is only shown."""

    text: str
    line: int
    exits: int = 0
    not_run: str | None = None


def commands(markdown: str) -> list[Command]:
    """Return the commands of a document, in order."""
    return [command for block in _blocks(markdown) for command in block.commands()]


@dataclass(frozen=True)
class _Block:
    language: str
    line: int
    lines: list[str]
    markers: Mapping[str, str]

    def commands(self) -> Iterator[Command]:
        if self.language not in LANGUAGES:
            return
        pending: list[str] = []
        start = self.line
        for number, line in enumerate(self.lines, self.line + 1):
            if not pending:
                if self.language == "console" and not line.startswith("$ "):
                    continue  # output
                if not line.strip() or line.lstrip().startswith("#"):
                    continue
                start = number
            prompt = ("> " if pending else "$ ") if self.language == "console" else ""
            pending.append(line.removeprefix(prompt))
            if _complete("\n".join(pending)):
                yield self._command("\n".join(pending), start)
                pending = []
        if pending:
            raise ValueError(f"line {start}: the command has no end: {pending[0]}")

    def _command(self, text: str, line: int) -> Command:
        return Command(text, line, int(self.markers.get("exits", "0")), self.markers.get("not run"))


def _blocks(markdown: str) -> Iterator[_Block]:
    lines = iter(enumerate(markdown.splitlines(), 1))
    markers: dict[str, str] = {}
    for number, line in lines:
        fence = FENCE.match(line)
        if fence:
            indent = len(line) - len(line.lstrip())
            content = []
            for _, inner in lines:
                if inner.strip() == fence[1]:
                    break
                content.append(inner[indent:])
            yield _Block(fence[2], number, content, markers)
            markers = {}
        elif marker := MARKER.match(line):
            markers[marker[1]] = marker[2]
        elif line.strip():
            markers = {}


def _complete(text: str) -> bool:
    """Tell whether this is a whole command: no open quote, loop, line continuation or here-document."""
    if text.endswith("\\"):
        return False
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    return done.returncode == 0 and not done.stderr


class CommandError(AssertionError):
    """A command of a document did not do what the document says; the message shows its output."""


class Shell:
    """A bash that lives through a document, so that variables and folders carry over from command to command."""

    def __init__(self, folder: Path, environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        self._results, told = os.pipe()
        with log.open("wb") as output:
            self._bash = subprocess.Popen(
                ["bash", "--noprofile", "--norc"],
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[told],
                start_new_session=True,
            )
        os.close(told)
        self._told = told

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.killpg(self._bash.pid, signal.SIGKILL)  # with what a command left in the background
        self._bash.communicate()
        os.close(self._results)

    def run(self, command: Command, timeout_s: float) -> str:
        """Run one command and return what it printed; CommandError on another exit code, or when it goes on."""
        start = self._log.stat().st_size
        script = f"{{\n{command.text}\n}} </dev/null\necho $? >&{self._told}\n"
        assert self._bash.stdin is not None
        self._bash.stdin.write(script.encode())
        self._bash.stdin.flush()
        code = self._exit_code(time.monotonic() + timeout_s)
        output = self._log.read_bytes()[start:].decode(errors="replace")
        if code != command.exits:
            how = f"goes on after {timeout_s:g} s" if code is None else f"exits with {code}, not {command.exits}"
            raise CommandError(f"line {command.line}: `{command.text}` {how}:\n{output[-4000:]}")
        return output

    def _exit_code(self, deadline: float) -> int | None:
        text = b""
        while not text.endswith(b"\n"):
            ready, _, _ = select.select([self._results], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return None
            read = os.read(self._results, 64)
            if not read:
                return -1  # the command ended the shell itself
            text += read
        return int(text)
