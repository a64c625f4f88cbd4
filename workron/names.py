"""Names of queues and schedules: each is a segment of a URL's path."""

from typing import Final

_FIRST: Final = r"[A-Za-z0-9_\-]"
_ANY: Final = r"[A-Za-z0-9_.\-]"
NAME: Final = rf"({_FIRST}{_ANY}{{0,63}}|\.{_FIRST}{_ANY}{{0,62}}|\.\.{_ANY}{{1,62}})"
"""Up to 64 letters, digits, `_`, `.` and `-`, without `.` and `..`: clients resolve these two in paths."""
NAME_IN_WORDS: Final = "must be 1 to 64 letters, digits, '_', '-' and '.', and not '.' or '..'"
