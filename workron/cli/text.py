"""Makes untrusted text, such as a job's name or output, safe for a terminal."""

import re
from typing import Final

from workron.lines import lines_of

_ZERO_WIDTH_JOINER: Final = "\u200d"
_NAMED: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str) -> str:
    """Return the text in one line, invisible characters written as escapes (`\\x1b`, `\\n`, `\\u202e`)."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == _ZERO_WIDTH_JOINER else _escaped(char) for char in text)


def printable_lines(text: str) -> str:
    """Return the text like `printable`, but with line breaks."""
    return "\n".join(printable(line.replace("\t", "    ")) for line in lines_of(text))


def _escaped(char: str) -> str:
    if char in _NAMED:
        return _NAMED[char]
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_SEQUENCE: Final = re.compile(
    rb"\x1b\[[0-9;:]*[mK]"  # colours, and clearing a line: kept, progress bars need it
    rb"|\x1b\[[\x30-\x3f]*[\x20-\x2f]*[\x40-\x7e]?"  # other CSI: cursor, screen, modes
    rb"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC, DCS …: titles, clipboard, links
    rb"|\x1b[\x20-\x2f]*[\x30-\x7e]?"
    rb"|\xc2[\x80-\x9f]"  # C1 controls, as UTF-8
    rb"|[\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]"
)
_HARMLESS: Final = re.compile(rb"\x1b\[[0-9;:]*[mK]")
_UNFINISHED: Final = re.compile(
    rb"(?:\xc2|\x1b(?:\[[\x30-\x3f]*[\x20-\x2f]*|[\]PX^_][^\x07\x1b]*\x1b?|[\x20-\x2f]*))\Z"
)
_LONGEST_SEQUENCE: Final = 4096


class TerminalFilter:
    """Removes control sequences, except colours, from a stream of bytes."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Return the safe bytes; a sequence cut by the end of `data` waits for its rest."""
        data = self._held + data
        self._held = b""
        unfinished = _UNFINISHED.search(data)
        if unfinished and len(data) - unfinished.start() <= _LONGEST_SEQUENCE:
            self._held = data[unfinished.start() :]
            data = data[: unfinished.start()]
        return _SEQUENCE.sub(lambda match: match[0] if _HARMLESS.fullmatch(match[0]) else b"", data)
