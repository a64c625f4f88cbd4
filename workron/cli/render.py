"""Data on stdout: tables that fit the terminal, JSON, or JSON lines."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import chain, repeat
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from workron.cli.text import printable

if TYPE_CHECKING:
    from rich.console import Console


class Format(StrEnum):
    """Output formats."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


FormatOption = Annotated[
    Format,
    typer.Option("--output", "-o", metavar="FORMAT", help="table, json, or jsonl (one JSON document per line)"),
]

_GAP: Final = 2
_LEAST: Final = 10
"""Minimum width of a flexible column, unless its content is narrower."""
_NO_LIMIT: Final = 100_000
_UNSAFE: Final = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_STATUS_STYLES: Final = {
    "scheduled": "cyan",
    "blocked": "magenta",
    "pending": "yellow",
    "running": "bold blue",
    "done": "green",
    "failed": "bold red",
    "cancelled": "red",
    "skipped": "dim",
}


@dataclass(frozen=True)
class Column:
    """A column: `rank` 0 is always shown; of the others, the highest is dropped first on narrow terminals."""

    title: str
    cell: Callable[[Any], str]
    rank: int = 0
    flexible: bool = False
    right: bool = False
    style: Callable[[Any], str] = lambda _: ""


def status_style(status: str) -> str:
    """Return the colour of a job's or workflow's status."""
    return _STATUS_STYLES.get(status, "")


@cache
def console() -> "Console":
    """Return the console of stdout: colours on a terminal only, unlimited width elsewhere."""
    from rich import console

    class Console(console.Console):
        def on_broken_pipe(self) -> None:
            """Raise BrokenPipeError, which is handled for all commands in one place."""
            raise BrokenPipeError

    terminal = sys.stdout.isatty()
    plain = not terminal or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return Console(
        color_system=None if plain else "auto",
        force_terminal=terminal,
        highlight=False,
        markup=False,
        emoji=False,
        width=None if terminal else _NO_LIMIT,
    )


def print_table(documents: Iterable[Any], form: Format, columns: Sequence[Column]) -> int:
    """Print documents as a table, JSON, or JSON lines as they arrive; return their number."""
    if form is Format.JSONL:
        count = 0
        for count, document in enumerate(documents, 1):  # noqa: B007 - counts what was shown, also behind the loop
            print(_encode(document), flush=True)
        return count
    rows = list(documents)
    if form is Format.JSON:
        print(_encode(rows, indent=2))
    elif rows:
        _print_rows(rows, columns)
    return len(rows)


def print_document(document: Mapping[str, Any], form: Format, card: Callable[[Any], None]) -> None:
    """Print one document by `card`, or as JSON."""
    if form is Format.TABLE:
        card(document)
    else:
        print(_encode(document, indent=2 if form is Format.JSON else None))


def print_card(heading: str, style: str, rows: Iterable[tuple[str, str]]) -> None:
    """Print a heading, followed by labels with their values; skip empty values."""
    from rich.text import Text

    print_styled(printable(heading), style or "bold")
    filled = [(label, value) for label, value in rows if value]
    indent = 2 * _GAP + max((len(label) for label, _ in filled), default=0)
    room = max(console().width - indent, _LEAST)
    for label, value in filled:
        lines = Text(value).wrap(console(), room, overflow="fold")
        for margin, line in zip(chain([f"{'':{_GAP}}{label}"], repeat("")), lines, strict=False):
            console().print(Text.assemble((margin.ljust(indent), "dim"), line.plain.rstrip()), soft_wrap=True)


def print_styled(line: str, style: str) -> None:
    """Print one line of text in this style."""
    from rich.text import Text

    console().print(Text(line, style), soft_wrap=True)


def _encode(document: object, indent: int | None = None) -> str:
    """Return JSON without control characters for a terminal."""
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    text = json.dumps(document, ensure_ascii=not unicode, indent=indent)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _print_rows(documents: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> None:
    from rich.text import Text

    rows = [[printable(column.cell(document)) for column in columns] for document in documents]
    widths = _fit(columns, rows, console().width)
    shown = [index for index, width in enumerate(widths) if width]
    titles = [column.title for column in columns]
    styles = [[column.style(document) for column in columns] for document in documents]
    for cells, cell_styles in zip([titles, *rows], [["bold dim"] * len(columns), *styles], strict=True):
        line = Text()
        for index in shown:
            cell = Text(cells[index], cell_styles[index])
            last = index == shown[-1]
            cell.truncate(widths[index], overflow="ellipsis", pad=not columns[index].right and not last)
            if columns[index].right:
                cell.align("right", widths[index])
            line.append_text(cell).append("" if last else " " * _GAP)
        console().print(line, soft_wrap=True)


def _fit(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return the width of each column; 0 for dropped ones: empty columns and the least important."""
    from rich.cells import cell_len

    widths = [
        max([len(column.title), *(cell_len(row[index]) for row in rows)])
        if column.rank == 0 or any(row[index] for row in rows)
        else 0
        for index, column in enumerate(columns)
    ]
    least = [min(width, _LEAST) if column.flexible else width for column, width in zip(columns, widths, strict=True)]
    for index in sorted(range(len(columns)), key=lambda index: -columns[index].rank):
        if _total(least) > room and columns[index].rank:
            least[index] = widths[index] = 0
    while (excess := _total(widths) - room) > 0:
        widest = max(range(len(columns)), key=lambda index: widths[index] - least[index])
        if widths[widest] == least[widest]:
            break
        widths[widest] -= min(excess, widths[widest] - least[widest])
    return widths


def _total(widths: Sequence[int]) -> int:
    shown = [width for width in widths if width]
    return sum(shown) + _GAP * (len(shown) - 1)
