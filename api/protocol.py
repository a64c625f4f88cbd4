"""HTTP/1.1 as uvicorn speaks it, with limits for who has not shown a key yet.

The parser keeps whatever comes of a head, and of the fields that may follow a chunked body, from anybody; and uvicorn
waits for the rest of a request as long as its client likes.
"""

import logging
import time
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD: Final = 256 * 1024
"""At least what one read of the transport brings: that may be the rest of a body and the next head."""
MOST_FIELDS: Final = 500
"""Of a head; each takes far more than its bytes, as long as its connection."""
LOOK_EVERY_S: Final = 10.0
QUIET_S: Final = 10.0
MOST_LOOKS: Final = 3
"""A connection that was found without a whole request so often in a row is closed."""


class Seldom(logging.Filter):
    """Lets each warning pass once in a while: whoever can connect has uvicorn write one with every request."""

    def __init__(self) -> None:
        super().__init__()
        self._passed_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.ERROR:
            return True
        now_s = time.monotonic()
        passes = now_s - self._passed_s.get(record.msg, -QUIET_S) >= QUIET_S
        if passes:
            self._passed_s[record.msg] = now_s
        return passes


class LimitedHttp(HttpToolsProtocol):
    """Answers 400 and closes when a head, or what follows a body, has more than `MAX_HEAD` bytes or `MOST_FIELDS`.

    Fields behind a body are no part of the head: neither key nor host is taken from them.
    """

    _moved = False
    _stuck = 0
    """Bytes of the latest reads in which there was neither a part of a body nor the end of a head."""
    _served: Any = None
    _looks = 0

    def data_received(self, data: bytes) -> None:
        self._moved = False
        super().data_received(data)
        self._stuck = 0 if self._moved else self._stuck + len(data)
        if self._stuck and self._too_long() and not self.transport.is_closing():
            self.send_400_response("The head of this request is too long.")

    def on_headers_complete(self) -> None:
        self._moved = True
        if len(self.headers) > MOST_FIELDS:
            raise ValueError("too many fields")  # the parser makes it a 400
        super().on_headers_complete()
        self.headers = []  # what comes now goes there, and not into the request's

    def on_body(self, body: bytes) -> None:
        self._moved = True
        super().on_body(body)

    def _too_long(self) -> bool:
        return self._stuck > MAX_HEAD or len(self.headers or ()) > MOST_FIELDS

    def look(self) -> None:
        """Close if nothing is being answered, for the client has not sent a whole request for long.

        Who has had an answer and sends nothing has the time that uvicorn gives it.
        """
        answering = self.cycle is not None and not self.cycle.response_complete
        waits = not answering and not self.pipeline and self.timeout_keep_alive_task is None
        self._looks = self._looks + 1 if waits and self.cycle is self._served else 0
        self._served = self.cycle
        if self._looks >= MOST_LOOKS:
            self.transport.close()
