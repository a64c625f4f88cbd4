"""The tables of docs/keys.md, made from the key schema."""

import re
from typing import Final

from workron.doctor.key_schema import GROUPS, Shape

_HEAD: Final = "| key | type | contents |\n|---|---|---|\n"
_TYPES: Final = {"zset": "sorted set", "": "any"}
SECTION: Final = re.compile(rf"(?<=^## )(?P<heading>.*)\n\n{re.escape(_HEAD)}(?:\|.*\n)*", re.MULTILINE)


def page(before: str) -> str:
    """Return the page with the table under each heading replaced by the kinds of keys of that group."""
    return SECTION.sub(lambda found: _section(found["heading"]), before)


def _section(heading: str) -> str:
    return f"{heading}\n\n{_HEAD}" + "".join(_row(shape) for shape in GROUPS[heading])


def _row(shape: Shape) -> str:
    kind = _TYPES.get(shape.type, shape.type) + (shape.note and f", {shape.note}")
    return f"| `{shape.name}` | {kind} | {shape.contents} |\n"
