"""The output of `workron demo`: sentences and commands, and below them, on a terminal, the current state of the jobs.

Without a terminal, each change of a job is a line instead.
"""

import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from workron.amounts import counted
from workron.cli import moments
from workron.cli.listing import ending
from workron.cli.render import NO_LIMIT, is_plain, status_style
from workron.client.documents import JobDoc

Jobs = Mapping[str, JobDoc]
"""The jobs of the workflow by their names, in its order."""

_INDENT: Final = 5
_WIDTH: Final = 79
_READING_S: Final = 1.5
_BAR: Final = 8
_LOW: Final = 0.4
"""The bar of a lease is red below this fraction."""


class Screen:
    """The output on stdout, while the context is open."""

    def __init__(self, lease_s: float) -> None:
        self.history: Final[dict[tuple[str, int], str]] = {}
        """How earlier attempts ended, by the job's name and the attempt."""
        self._lease_s = lease_s
        self._console = _console()
        self._width = min(_WIDTH, self._console.width)
        self._live: Live | None = None
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True, redirect_stderr=False)
        self._steps = 0
        self._told: dict[str, tuple[str, int]] = {}
        self._since_s = time.monotonic()

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live:
            self._live.update("")
            self._live.stop()

    @property
    def reading_s(self) -> float:
        """How long to pause to let the user read."""
        return _READING_S if self._live else 0

    def gap(self) -> None:
        self._print(Text(""))

    def title(self, text: str) -> None:
        self._print(Text.assemble("\n  ", (text, "bold"), "\n"))

    def step(self, title: str, sentence: str) -> None:
        """Begin the next step."""
        self._steps += 1
        self._print(Text.assemble("\n  ", (f"{self._steps}  {title}", "bold cyan")))
        self.say(sentence)

    def say(self, sentence: str) -> None:
        for line in self._wrapped(sentence):
            self._print(Text(line))

    def picture(self, text: str) -> None:
        self._print(Text(f"\n{textwrap.indent(text, ' ' * (_INDENT + 3))}"))

    def command(self, *parts: str) -> None:
        """Show a command to type, on one line or, in parts, on several."""
        line = f" \\\n{'':{_INDENT + 4}}".join(parts)
        self._print(Text.assemble(" " * _INDENT, ("$ ", "dim"), (line, "bold")))

    def answer(self, text: str) -> None:
        """Show the output of a command."""
        self._print(Text(f"{'':{_INDENT + 2}}{text}", "dim"))

    def done(self, sentence: str) -> None:
        self._mark("✓", "green", sentence)

    def blow(self, sentence: str) -> None:
        self._mark("✗", "bold red", sentence)

    def waiting(self, sentence: str) -> None:
        """Show what the tour is waiting for, until it is removed again."""
        if self._live:
            self._live.update(Text(f"\n{'':{_INDENT}}{sentence}", "dim"), refresh=True)

    def show(self, jobs: Jobs) -> None:
        """Show the state of the jobs."""
        self._remember(jobs)
        if self._live:
            self._live.update(Group(Text(f"\n  {'─' * (self._width - 4)}", "dim"), *self._table(jobs)), refresh=True)
            return
        for name, job in jobs.items():
            if self._told.get(name) != (job["status"], job["attempts"]):
                self._told[name] = (job["status"], job["attempts"])
                self._print(Text(f"{'':{_INDENT}}{self._elapsed()}  {name:<8} {self._news(job)}"))

    def table(self, jobs: Jobs) -> None:
        """Print the state of the jobs permanently."""
        if self._live:
            self._live.update("", refresh=True)
        self._print(Text(""))
        for line in self._table(jobs):
            self._print(line)
        self._print(Text(""))

    def _print(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)

    def _wrapped(self, sentence: str, hang: int = 0) -> list[str]:
        """Return the lines of a sentence with a hanging indent."""
        return textwrap.wrap(
            sentence,
            self._width,
            initial_indent=" " * _INDENT,
            subsequent_indent=" " * (_INDENT + hang),
            break_long_words=False,
            break_on_hyphens=False,
        )

    def _mark(self, mark: str, style: str, sentence: str) -> None:
        text = Text("\n".join(self._wrapped(f"{mark} {sentence}", hang=len(mark) + 1)))
        text.stylize(style, _INDENT, _INDENT + len(mark))
        self._print(text)

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self._since_s:5.1f} s"

    def _remember(self, jobs: Jobs) -> None:
        """Remember how earlier attempts ended: a job shows it only until its next attempt is done."""
        for name, job in jobs.items():
            if job["reason"] and job["status"] in {"running", "pending", "scheduled"}:
                self.history[name, job["attempts"] - (job["status"] == "running")] = ending(job)

    def _news(self, job: JobDoc) -> str:
        match job["status"]:
            case "running":
                return f"running, attempt {job['attempts']} on {job['worker']}"
            case "scheduled":
                return f"attempt {job['attempts']} failed ({ending(job)}), the next one is due in {_due(job)}"
            case "done":
                return f"done in {moments.took(job)}"
            case status:
                return status

    def _table(self, jobs: Jobs) -> Iterator[Text]:
        titles = f"  {'JOB':<8} {'STATUS':<9}  {'TRIES':>5}  {'WORKER':<10}  {'TOOK':>5}"
        yield Text(titles, "bold dim", no_wrap=True, overflow="ellipsis")
        for name, job in jobs.items():
            line = Text.assemble(
                f"  {name:<8} ",
                (f"{job['status']:<9}", status_style(job["status"])),
                f"  {job['attempts']:>3}/{job['max_attempts']}  {job['worker'] or '':<10}  {moments.took(job):>5}  ",
                self._note(name, job, jobs),
            )
            line.rstrip()
            line.no_wrap, line.overflow = True, "ellipsis"
            yield line

    def _note(self, name: str, job: JobDoc, jobs: Jobs) -> Text:
        if job["status"] == "running":
            return self._lease(job)
        if job["status"] == "scheduled":
            return Text(f"{ending(job)}, again in {_due(job)}", "yellow")
        if ended := [f"{attempt}: {how}" for (whose, attempt), how in self.history.items() if whose == name]:
            return Text(f"attempt {', '.join(ended)}", "yellow")
        if job["status"] == "blocked":
            names = {each["id"]: parent for parent, each in jobs.items()}
            left = [names[edge["job"]] for edge in job["dependencies"] if edge["status"] != "done"]
            return Text(f"waits for {left[0] if len(left) == 1 else counted(len(left), 'job')}", "dim")
        return Text("waits for a worker" if job["status"] == "pending" else "", "dim")

    def _lease(self, job: JobDoc) -> Text:
        """Return the remaining fraction of the lease; each heartbeat fills it up."""
        left_s = self._lease_s - (_ago_s(job["last_heartbeat"]) if job["last_heartbeat"] else self._lease_s)
        if left_s <= 0:
            return Text("lease is over", "bold red")
        full = min(_BAR, round(_BAR * left_s / self._lease_s + 0.49))
        style = "green" if left_s > _LOW * self._lease_s else "red"
        return Text.assemble(("lease ", "dim"), ("■" * full, style), ("□" * (_BAR - full), "dim"), f" {left_s:.1f}s")


def _ago_s(moment: str) -> float:
    return (datetime.now(UTC) - moments.parse(moment)).total_seconds()


def _due(job: JobDoc) -> str:
    return moments.length(-_ago_s(job["run_at"]) if job["run_at"] else 0)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError, which is handled for all commands in one place."""
        raise BrokenPipeError


def _console() -> Console:
    """Return the console of stdout: colours on a terminal only, unlimited width elsewhere."""
    terminal = sys.stdout.isatty()
    return _Console(
        color_system="auto" if terminal and not is_plain() else None,
        force_terminal=terminal,
        highlight=False,
        markup=False,
        emoji=False,
        width=None if terminal else NO_LIMIT,
    )
