"""HTTP/1.1 as uvicorn speaks it, with a limit on a request's head.

The parser keeps whatever comes until the head is complete, from anybody: no key has been seen by then.
"""

from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD: Final = 256 * 1024
"""At least what one read of the transport brings: that may be the rest of a body and the next head."""


class LimitedHttp(HttpToolsProtocol):
    """Answers 400 and closes when a head goes on for more than `MAX_HEAD` bytes."""

    _in_head = False
    _head_size = 0

    def data_received(self, data: bytes) -> None:
        goes_on = self._in_head
        super().data_received(data)
        if goes_on and self._in_head:
            self._head_size += len(data)
            if self._head_size > MAX_HEAD and not self.transport.is_closing():
                self.send_400_response("The head of this request is too long.")

    def on_message_begin(self) -> None:
        self._in_head, self._head_size = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()
