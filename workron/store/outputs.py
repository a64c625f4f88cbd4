"""Reads the output of a job's attempts together with the job's status, atomically."""

from collections.abc import Iterator

from workron.errors import NotFound
from workron.models import OUTPUT_HEAD, Output, Piece, Position, Status, Written
from workron.redis.read_pool import Reads
from workron.redis.scripts import Scripts, UnknownReply


class Outputs:
    """Reading calls on stored output."""

    def __init__(self, scripts: Scripts, reads: Reads) -> None:
        self._scripts = scripts
        self._reads = reads

    async def written(self, job_id: str, position: Position | None) -> Written:
        """Return the output after a position, of one attempt; None: of the latest attempt with output."""
        fence, offset = ("", 0) if position is None else (position.fence, position.offset)
        async with self._reads.turn() as connection:
            reply = await self._scripts.job_output(job_id, fence, offset, on=connection)
        match reply:
            case [b"OUTPUT", status, attempt, total, size, data]:
                found = int(attempt or 0)
                pieces = _pieces(found, offset if found == fence else 0, total, size, data)
                return Written(Status(status.decode()), found, total, tuple(pieces))
            case [b"UNKNOWN"]:
                raise NotFound("job", job_id)
            case _:
                raise UnknownReply("job_output", reply)

    async def latest(self, job_id: str) -> Output:
        """Return the stored output of the latest attempt with output."""
        written = await self.written(job_id, None)
        head, cut, tail = b"", 0, b""
        for piece in written.pieces:
            if piece.data is None:
                cut = piece.end - piece.start
            elif cut:
                tail = piece.data
            else:
                head = piece.data
        return Output(written.fence or None, head, cut, tail)


def _pieces(fence: int, at: int, total: int, size: int, data: bytes) -> Iterator[Piece]:
    """Yield the bytes of an attempt from `at` to `total`; `size` bytes are stored, `data` is their end."""
    head = min(size, OUTPUT_HEAD) if total > size else total
    tail = total - size + head if total > size else total
    if at < head:
        yield Piece(fence, at, head, data[: head - at])
    if (cut := max(at, head)) < tail:
        yield Piece(fence, cut, tail, None)
    if (rest := max(at, tail)) < total:
        yield Piece(fence, rest, total, data[-(total - rest) :])
