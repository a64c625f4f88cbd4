"""What the API sends to who follows an output, for tests that play the API."""

from tests.command_line import Answer
from workron.models import Piece, Position, output_stream


def text(fence: int, start: int, data: bytes) -> bytes:
    """The event of a piece of output."""
    return output_stream.piece_event(Piece(fence, start, start + len(data), data))


def cut(fence: int, start: int, end: int) -> bytes:
    """The event of bytes that were not kept."""
    return output_stream.piece_event(Piece(fence, start, end, None))


def end(fence: int = 0, offset: int = 0) -> bytes:
    return output_stream.end_event(Position(fence, offset))


def stream(*events: bytes, breaks: bool = False, stalls: bool = False) -> Answer:
    """A followed stream; see `Answer` for how it may stop."""
    headers = {"content-type": output_stream.CONTENT_TYPE}
    return Answer(raw=b"".join(events), headers=headers, breaks=breaks, stalls=stalls)
