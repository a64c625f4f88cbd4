"""Data on stdout: tables that fit the terminal, JSON, or JSON lines."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from itertools import accumulate, takewhile
from typing import Any, Final, NamedTuple

import click

from workron.cli.text import printable


class Format(StrEnum):
    """Output formats."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


output_option = click.option(
    "--output",
    "-o",
    type=click.Choice(Format, case_sensitive=False),
    default=Format.TABLE,
    metavar="FORMAT",
    help="table, json, or jsonl (one JSON document per line)",
)

_GAP: Final = 2
_LEAST: Final = 10
"""Minimum width of a flexible column, unless its content is narrower."""
NO_LIMIT: Final = 100_000
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
STATUSES: Final = tuple(_STATUS_STYLES)
_CODES: Final = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
"""Select Graphic Rendition, ECMA-48."""


class Column(NamedTuple):
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
def is_plain() -> bool:
    """Whether stdout shows no colours: it is not a terminal, or a simple one."""
    return not sys.stdout.isatty() or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


@cache
def _room() -> int:
    """Return the width of the terminal; elsewhere there is no limit."""
    if not sys.stdout.isatty():
        return NO_LIMIT
    from shutil import get_terminal_size

    return get_terminal_size().columns


def _styled(text: str, style: str) -> str:
    if not style or not text or is_plain():
        return text
    return f"\x1b[{';'.join(_CODES[word] for word in style.split())}m{text}\x1b[0m"


def print_table(documents: Iterable[Any], form: Format, columns: Sequence[Column]) -> int:
    """Print documents as a table, JSON, or JSON lines as they arrive; return their number."""
    if form is Format.JSONL:
        count = 0
        for count, document in enumerate(documents, 1):  # noqa: B007 - counts the lines, also after the loop
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
    print_styled(printable(heading), style or "bold")
    filled = [(label, value) for label, value in rows if value]
    indent = 2 * _GAP + max((len(label) for label, _ in filled), default=0)
    for label, value in filled:
        margin = _styled(f"{'':{_GAP}}{label}".ljust(indent), "dim")
        for line in _wrapped(value, max(_room() - indent, _LEAST)):
            print(f"{margin}{line}")
            margin = " " * indent


def print_styled(line: str, style: str) -> None:
    """Print one line of text in this style."""
    print(_styled(line, style))


def _encode(document: object, indent: int | None = None) -> str:
    """Return JSON without control characters for a terminal."""
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    text = json.dumps(document, ensure_ascii=not unicode, indent=indent)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _print_rows(documents: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> None:
    rows = [[printable(column.cell(document)) for column in columns] for document in documents]
    widths = _fit(columns, rows, _room())
    styles = [[column.style(document) for column in columns] for document in documents]
    titles = [column.title for column in columns]
    for cells, cell_styles in zip([titles, *rows], [["bold dim"] * len(columns), *styles], strict=True):
        line = ""
        for cell, style, width, column in zip(cells, cell_styles, widths, columns, strict=True):
            if width:
                text = _cut(cell, width)
                padding = " " * (width - _cells(text))
                line += f"{padding if column.right else ''}{_styled(text, style)}{'' if column.right else padding}"
                line += " " * _GAP
        print(line.rstrip())


def _cells(text: str) -> int:
    """Return the number of columns that the text takes on a terminal."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    return sum(0 if category(char) in {"Mn", "Me", "Cf"} else 1 + (east_asian_width(char) in "WF") for char in text)


def _fitting(text: str, room: int) -> int:
    """Return how many characters of the text take at most this number of columns."""
    if text.isascii():
        return min(len(text), room)
    ends = accumulate(_cells(char) for char in text)
    return sum(1 for _ in takewhile(lambda end: end <= room, ends))


def _cut(text: str, width: int) -> str:
    return text if _cells(text) <= width else f"{text[: _fitting(text, width - 1)]}…"


def _wrapped(text: str, room: int) -> Iterator[str]:
    """Yield the lines of a text, broken at spaces, and inside of words that are longer than a line."""
    for line in text.split("\n"):
        rest = line
        while _cells(rest) > room:
            fitting = _fitting(rest, room)
            space = rest.rfind(" ", 1, fitting + 1)
            end = space if space > 0 and rest[:space].strip() else fitting
            yield rest[:end].rstrip()
            rest = rest[end:].lstrip()
        yield rest.rstrip()


def _fit(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return the width of each column; 0 for dropped ones: empty columns and the least important."""
    widths = [
        max([len(column.title), *(_cells(row[index]) for row in rows)])
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
