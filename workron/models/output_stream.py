"""The format of followed output: server-sent events with positions.

    id: <fence>:<offset>
    event: output
    data: {"fence": 1764403200000, "from": 0, "to": 6, "base64": "aGVsbG8K"}

`id` is the position after the event: a stream opened there continues without a gap or a repeat. `cut`
gives bytes that were dropped, and `end` means that no more follow. An event with only an `id` shows that
the stream is alive.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from workron.models import Piece, Position

CONTENT_TYPE: Final = "text/event-stream"
POSITION_PATTERN: Final = r"^[0-9]{1,16}:[0-9]{1,16}$"


@dataclass(frozen=True, slots=True)
class Event:
    """An event of followed output: `data` to print, and the position after it; or the end of all output."""

    position: str
    data: bytes = b""
    ended: bool = False


def cut_line(missing: int) -> bytes:
    """Return the line that replaces dropped bytes."""
    return f"\n… {missing:,} bytes cut …\n".encode()


def printed(piece: Piece) -> bytes:
    """Return a piece as text."""
    return cut_line(piece.end - piece.start) if piece.data is None else piece.data


def piece_event(piece: Piece) -> bytes:
    kind = "cut" if piece.data is None else "output"
    document: dict[str, Any] = {"fence": piece.fence, "from": piece.start, "to": piece.end}
    if piece.data is not None:
        document["base64"] = b64encode(piece.data).decode()
    return _event(Position(piece.fence, piece.end), kind, document)


def alive_event(position: Position) -> bytes:
    return f"id: {position}\n\n".encode()


def end_event(position: Position) -> bytes:
    return _event(position, "end", {})


def _event(position: Position, kind: str, document: dict[str, Any]) -> bytes:
    return f"id: {position}\nevent: {kind}\ndata: {json.dumps(document)}\n\n".encode()


def read_events(chunks: Iterable[bytes]) -> Iterator[Event]:
    """Yield the complete events of a stream.

    Raises ValueError for invalid data.
    """
    fields: dict[bytes, bytes] = {}
    for line in _lines(chunks):
        name, _, value = line.partition(b":")
        if line:
            fields[name] = value.removeprefix(b" ")
        elif fields:
            yield _read(fields)
            fields = {}


def _read(fields: dict[bytes, bytes]) -> Event:
    position = fields.get(b"id", b"").decode("ascii")
    match fields.get(b"event"):
        case b"output":
            return Event(position, b64decode(json.loads(fields[b"data"])["base64"]))
        case b"cut":
            cut = json.loads(fields[b"data"])
            return Event(position, cut_line(cut["to"] - cut["from"]))
        case b"end":
            return Event(position, ended=True)
    return Event(position)  # it is alive, or says what is not known here


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield complete lines, without line breaks."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
