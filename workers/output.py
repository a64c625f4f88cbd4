"""The output of a command, bounded: its beginning, its end, and the total size."""

from typing import Final

from workron.models import OUTPUT_HEAD, OUTPUT_TAIL, OutputPatch
from workron.models.text import harmless, last_bytes

_SLACK: Final = 64 * 1024
"""The tail may exceed its size by this much before it is cut, so that not every write moves it."""


class OutputBuffer:
    """The first `head` and the last `tail` bytes of an output of any length.

    `write` appends; `take` returns the patch for the stored copy. A command without output costs nothing,
    one with endless output less than `head` + `tail` + 128 KiB.
    """

    def __init__(self, *, head: int = OUTPUT_HEAD, tail: int = OUTPUT_TAIL) -> None:
        self.total = 0
        """Total of bytes written so far."""
        self._head_limit = head
        self._tail_limit = tail
        self._head = bytearray()
        self._tail = bytearray()
        self._taken = 0

    def write(self, data: bytes) -> None:
        """Append to the output."""
        self.total += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > self._tail_limit + _SLACK:
            del self._tail[: -self._tail_limit]

    @property
    def untaken(self) -> int:
        """Size of the next patch."""
        return min(self.total, self._head_limit + self._tail_limit) - self._offset if self._taken < self.total else 0

    @property
    def _offset(self) -> int:
        cut = self.total > self._head_limit + self._tail_limit
        return min(self._taken, self._head_limit) if cut else self._taken

    def take(self) -> OutputPatch | None:
        """Return the changes since the last call, None if there are none.

        A patch appends until output was cut; after that it rewrites the tail.
        """
        if self._taken == self.total:
            return None
        offset = self._offset
        tail = memoryview(self._tail)[max(0, len(self._tail) - self._tail_limit) :]
        data = self._head[offset:] + tail[max(0, offset - self._head_limit) :]
        self._taken = self.total
        return OutputPatch(offset, bytes(data), self.total)

    def put_back(self, patch: OutputPatch) -> None:
        """Undo `take` for a patch that could not be delivered: the next one covers it too."""
        self._taken = min(self._taken, patch.offset)

    def tail_text(self, limit: int) -> str:
        """Return the end of the output as harmless text of at most `limit` bytes of UTF-8."""
        # `limit` bytes make at least as many bytes of text: every change that `harmless` makes lengthens it,
        # but for line ends. One byte more tells last_bytes that something was cut.
        wanted = limit + 1
        end = bytes(self._tail[-wanted:])
        if len(end) < wanted:
            end = bytes(self._head[-(wanted - len(end)) :]) + end
        return last_bytes(harmless(end.decode(errors="replace")), limit)
