"""Sanitizes and truncates text of commands and users."""

import re
from typing import Final

LONGEST_LINE: Final = 200

_CONTROL: Final = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"} | {0x7F: 0x2421}
_INVISIBLE: Final = re.compile("[\x80-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""C1 controls (some terminals obey them), bidirectional marks, and lone surrogates."""


def harmless(text: str) -> str:
    """Return the text with control characters made visible, so that it can't control a terminal or break an encoder."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROL)
    return _INVISIBLE.sub("\N{REPLACEMENT CHARACTER}", text)


def last_bytes(text: str, limit: int) -> str:
    """Return the end of the text that fits into `limit` bytes of UTF-8, after an ellipsis where it was cut."""
    data = text.encode()
    if len(data) <= limit:
        return text
    ellipsis = "…"
    room = limit - len(ellipsis.encode())
    return ellipsis + data[-room:].decode(errors="ignore") if room > 0 else ""


def first_line(text: str) -> str:
    """Return the first line as harmless text of at most `LONGEST_LINE` characters."""
    return harmless(text.strip()).split("\n", 1)[0][:LONGEST_LINE].rstrip()
