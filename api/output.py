"""Output as bytes from an offset, once or as it comes."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.callers import confirm
from api.context import Context
from workron.errors import NotFound, StoreUnavailable, Unauthorized
from workron.models import Output

_RECONNECT_S: Final = 1.0
_HEADERS: Final = {"content-type": "text/plain", "x-content-type-options": "nosniff"}


class StoredOutput(Response):
    """The output that is there now, from byte `offset` on; the header tells how much was written in all."""

    def __init__(self, output: Output, offset: int) -> None:
        headers = _HEADERS | {"x-workron-output-total": str(output.total)}
        super().__init__(from_offset(output, offset), headers=headers)


class FollowedOutput(Response):
    """The output as it comes, until the job has ended, the key is over, the client leaves or the server stops."""

    def __init__(self, context: Context, job_id: str, offset: int) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._context = context
        self._follower = Follower(context, job_id, offset)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        request = Request(scope, receive)
        with suppress(Unauthorized, StoreUnavailable):  # it ends there
            await self._context.while_wanted(request, self._pass_on(request, send))
        await send({"type": "http.response.body", "body": b""})

    async def _pass_on(self, request: Request, send: Send) -> None:
        async with aclosing(self._follower.chunks()) as chunks:
            async for chunk in chunks:
                await confirm(request)
                await send({"type": "http.response.body", "body": chunk, "more_body": True})


class Follower:
    """Reads a job's output as it grows; a new attempt's output follows from its beginning."""

    def __init__(self, context: Context, job_id: str, offset: int) -> None:
        self._store = context.store
        self._outages = context.outages
        self._job_id = job_id
        self._position = offset
        self._attempt: int | None = None
        self._ended = False

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield what comes, until the job has ended; while the store is away, wait for it."""
        while not self._ended:
            try:
                async with self._store.changes(self._job_id) as changes:
                    async for _ in changes:
                        if chunk := await self._read():
                            yield chunk
                        if self._ended:
                            return
            except StoreUnavailable as error:
                self._outages.failed(error)
                await asyncio.sleep(_RECONNECT_S)
            except NotFound:
                return

    async def _read(self) -> bytes:
        # The status first: output that is read after the end is complete.
        self._ended = (await self._store.job(self._job_id)).status.terminal
        output = await self._store.output(self._job_id)
        if self._attempt is not None and output.attempt_fence != self._attempt:
            self._position = 0
        self._attempt = output.attempt_fence
        chunk = from_offset(output, self._position)
        self._position = max(self._position, output.total)
        return chunk


def from_offset(output: Output, offset: int) -> bytes:
    """Return the output from byte `offset` of all that was written; dropped bytes show as one line saying how many."""
    cut_end = len(output.head) + output.cut
    if offset >= cut_end:
        return output.tail[offset - cut_end :]
    missing = cut_end - max(offset, len(output.head))
    marker = f"\n… {missing:,} bytes cut …\n".encode() if missing else b""
    return output.head[offset:] + marker + output.tail
