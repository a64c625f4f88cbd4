"""Bar charts as SVG, by a few lines of our own."""

from collections.abc import Sequence
from html import escape
from typing import Final

from bench.results import number

_ROW: Final = 28
_LEFT: Final = 90
_WIDTH: Final = 640
_RIGHT: Final = 80


def bars(title: str, rows: Sequence[tuple[str, float]], ours: str) -> str:
    """Return a chart of horizontal bars, the longest first; ours has a colour of its own."""
    ordered = sorted(rows, key=lambda row: -row[1])
    longest = max((value for _, value in ordered), default=1.0)
    height = 40 + _ROW * len(ordered)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-family="sans-serif" '
        'font-size="13">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="10" y="22" font-size="15">{escape(title)}</text>',
    ]
    for at, (name, value) in enumerate(ordered):
        y = 34 + _ROW * at
        length = max(1.0, value / longest * (_WIDTH - _LEFT - _RIGHT))
        colour = "#d9480f" if name == ours else "#8aa2b8"
        parts += [
            f'<text x="{_LEFT - 8}" y="{y + 15}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{_LEFT}" y="{y}" width="{length:.1f}" height="20" fill="{colour}"/>',
            f'<text x="{_LEFT + length + 6:.1f}" y="{y + 15}">{number(value)}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])
