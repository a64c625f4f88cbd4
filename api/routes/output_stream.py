"""Output as stored, as followed plain text, or as events with positions."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import ClassVar, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.auth.callers import confirm
from api.context import Context
from workron.errors import NotFound, StoreUnavailable, Unauthorized
from workron.models import Output, Piece, Position, output_stream

_RECONNECT_S: Final = 1.0
_ALIVE_S: Final = 15.0
"""Interval of keep-alives in a stream of events: the client reopens a silent one."""
_HEADERS: Final = {"content-type": "text/plain", "x-content-type-options": "nosniff"}


class StoredOutput(Response):
    """Return the present output from byte `offset` on; a header has the total size."""

    def __init__(self, output: Output, offset: int) -> None:
        headers = _HEADERS | {"x-workron-output-total": str(output.total)}
        super().__init__(from_offset(output, offset), headers=headers)


class Follower:
    """Follows a job's output from a position on, attempt after attempt.

    Without a position it begins with byte `offset` of the latest attempt with output.
    """

    def __init__(self, context: Context, job_id: str, position: Position | None, offset: int) -> None:
        self._store = context.store
        self._outages = context.outages
        self._job_id = job_id
        self._position = position
        self._offset = offset
        self.ended = False
        """Whether the job has ended and all its output was read."""

    @property
    def position(self) -> Position:
        """The position up to which it was read."""
        return self._position or Position()

    async def pieces(self) -> AsyncGenerator[Piece | None, None]:
        """Yield new output, None if there is none; wait while the store is unavailable."""
        with suppress(NotFound):
            while not self.ended:
                try:
                    async with self._store.changes(self._job_id) as changes:
                        async for _ in changes:
                            async for piece in self._behind():
                                yield piece
                            if self.ended:
                                return
                            yield None
                except StoreUnavailable as error:
                    self._outages.failed(error)
                    yield None
                    await asyncio.sleep(_RECONNECT_S)

    async def _behind(self) -> AsyncGenerator[Piece, None]:
        """Yield all output after the position; no output of an ended job is the end."""
        while True:
            written = await self._store.outputs.written(self._job_id, self._position)
            if self._position is None and written.fence:
                self._position = Position(written.fence, self._offset)
                continue
            for piece in written.pieces:
                self._position = Position(piece.fence, piece.end)
                yield piece
            if not written.pieces:
                self.ended = written.status.terminal
                return


class FollowedOutput(Response):
    """Yield the output until the job has ended, the key expires, the client disconnects or the server stops."""

    kept_alive: ClassVar = False

    def __init__(self, context: Context, follower: Follower) -> None:
        super().__init__(headers=self.head())
        del self.headers["content-length"]
        self._context = context
        self._follower = follower

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        request = Request(scope, receive)
        with suppress(Unauthorized, StoreUnavailable):  # it ends there
            await self._context.while_wanted(request, self._pass_on(request, send))
        await send({"type": "http.response.body", "body": b""})

    async def _pass_on(self, request: Request, send: Send) -> None:
        async def pass_on(data: bytes) -> None:
            await confirm(request)
            await send({"type": "http.response.body", "body": data, "more_body": True})

        sent_s = -_ALIVE_S
        async with aclosing(self._follower.pieces()) as pieces:
            async for piece in pieces:
                if piece is not None:
                    await pass_on(self.framed(piece))
                elif self.kept_alive and time.monotonic() - sent_s >= _ALIVE_S:
                    await pass_on(output_stream.alive_event(self._follower.position))
                else:
                    continue
                sent_s = time.monotonic()
        if self.kept_alive and self._follower.ended:
            await pass_on(output_stream.end_event(self._follower.position))

    def head(self) -> dict[str, str]:
        return _HEADERS

    def framed(self, piece: Piece) -> bytes:
        return output_stream.printed(piece)


class FollowedEvents(FollowedOutput):
    """Yield the same as events: with positions, keep-alives and an explicit end."""

    kept_alive = True

    def head(self) -> dict[str, str]:
        # nginx keeps an answer back until it has gathered enough of it.
        return _HEADERS | {
            "content-type": output_stream.CONTENT_TYPE,
            "cache-control": "no-store",
            "x-accel-buffering": "no",
        }

    def framed(self, piece: Piece) -> bytes:
        return output_stream.piece_event(piece)


def from_offset(output: Output, offset: int) -> bytes:
    """Return the output from byte `offset` of the total on; one line replaces dropped bytes."""
    cut_end = len(output.head) + output.cut
    if offset >= cut_end:
        return output.tail[offset - cut_end :]
    missing = cut_end - max(offset, len(output.head))
    marker = output_stream.cut_line(missing) if missing else b""
    return output.head[offset:] + marker + output.tail
