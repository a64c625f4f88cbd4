"""uvicorn's HTTP/1.1 protocol, with limits for unauthenticated clients and for clients that don't read.

The parser keeps any amount of header and trailer fields, from any client; and uvicorn
waits for the rest of a request, and keeps an unread response, for any time. It answers malformed requests in plain
text, even in the middle of another response, and loses the body of a request that asks for another protocol.
"""

import logging
import time
from typing import Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api import problems

MAX_HEAD: Final = 32 * 1024
"""Maximum size of a header, and of the data passed to the parser at a time."""
MOST_FIELDS: Final = 500
"""Maximum of header fields; each takes far more than its bytes, for the life of the connection."""
MOST_HELD: Final = 16 * 1024 * 1024
"""Maximum size of incomplete headers of all connections together."""
_FIELD_BYTES: Final = 150
MOST_AHEAD: Final = 16
"""Maximum of pipelined requests of a connection."""
SLOWEST: Final = 4096
"""Minimum of bytes that a client must read between two checks."""
LOOK_EVERY_S: Final = 10.0
QUIET_S: Final = 10.0
MOST_LOOKS: Final = 3
"""Number of checks without a complete request after which a connection is closed."""


class Seldom(logging.Filter):
    """Rate limit of each warning: any client can trigger one with every request."""

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


_VERSIONS: Final = ("0.9", "1.0", "1.1")
_TLS_HANDSHAKE: Final = b"\x16\x03"
_NO_VERSION: Final = "the request line does not end in HTTP/1.1"
_CAUSES: Final = (
    ("length", "content-length and transfer-encoding do not give one length"),
    ("transfer-encoding", "content-length and transfer-encoding do not give one length"),
    ("chunk", "the body is not in valid chunks"),
    ("method", "the request line does not begin with a known method"),
    ("url", "the target in the request line is not a valid path"),
    ("http", _NO_VERSION),
    ("version", _NO_VERSION),
    ("dot", _NO_VERSION),
    ("pri/", _NO_VERSION),
)
"""Words in the parser's messages, and what they mean."""


def _cause(message: str) -> str:
    return next((cause for word, cause in _CAUSES if word in message.lower()), "a header field is not valid HTTP/1.1")


class Heads:
    """The incomplete headers of all connections; if they are too large, the oldest connections are closed."""

    def __init__(self, most: int = MOST_HELD) -> None:
        self._most = most
        self._held: dict[LimitedHttp, int] = {}
        self._sum = 0

    def note(self, connection: "LimitedHttp", size: int) -> None:
        """Update the size of a connection's incomplete header."""
        before = self._held.get(connection, 0)
        if size == before:
            return
        self._sum += size - before
        if size:
            self._held[connection] = size
        else:
            del self._held[connection]
        while self._sum > self._most:
            oldest = next(iter(self._held))
            oldest.let_go()
            oldest.transport.abort()


class LimitedHttp(HttpToolsProtocol):
    """Answers 400 and closes if a header or trailer exceeds `MAX_HEAD` bytes or `MOST_FIELDS`.

    Trailer fields are not part of the header: key and host are not read from them.
    """

    _moved = False
    _stuck = 0
    """Bytes received since the latest part of a body or end of a header."""
    _served: Any = None
    _looks = 0
    _unread = 0
    """Unsent bytes at the last check."""
    _drained = False
    _slow_looks = 0
    _in_body = False
    """Whether the body of the latest request has not ended."""
    _fault = ""
    """The error in the current request, if a callback of the parser found it."""
    _refusal = b""
    """The response to a malformed request, due after the responses to earlier requests."""

    def __init__(self, *args: Any, heads: Heads, **options: Any) -> None:
        super().__init__(*args, **options)
        self._heads = heads

    def data_received(self, data: bytes) -> None:
        if self._refusal:
            return
        for start in range(0, len(data), MAX_HEAD):
            piece = data[start : start + MAX_HEAD]
            self._moved = False
            self._parse(piece)
            self._stuck = 0 if self._moved else self._stuck + len(piece)
            if self._stuck and self._too_long() and not self.transport.is_closing():
                self._refuse("the header of this request is too large")
            if self._refusal or self.transport.is_closing():
                self.let_go()
                return
        self._heads.note(self, self._stuck + _FIELD_BYTES * len(self.headers or ()) if self._stuck else 0)

    def _parse(self, piece: bytes) -> None:
        """Do what uvicorn does, but continue in HTTP/1.1 with a request that asks for another protocol."""
        self._unset_keepalive_if_required()
        is_tls = piece.startswith(_TLS_HANDSHAKE)
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:  # the parser has skipped the body
            fields = b"".join(b"%b: %b\r\n" % field for field in self.headers if field[0] != b"upgrade")
            head = b"%b %b HTTP/%b\r\n%b\r\n" % (
                self.parser.get_method(),
                self.url,
                self.parser.get_http_version().encode(),
                fields,
            )
            self._parse(head + piece[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self.logger.warning("Invalid HTTP request received.")
            self._refuse("this is TLS, but the API speaks plain HTTP" if is_tls else self._fault or _cause(str(error)))

    def _refuse(self, detail: str) -> None:
        """Answer 400 and close, after the responses to earlier requests; only close if this request has a response."""
        self._refusal = problems.closing(problems.problem(problems.BAD_REQUEST, detail))
        if self._in_body and self.cycle.response_started:
            self.transport.close()
        elif self._in_body and not self.pipeline:
            self._send_refusal()
        elif self._in_body:
            self.pipeline.popleft()  # its own turn has not come
        elif self.cycle is None or self.cycle.response_complete:
            self._send_refusal()

    def _send_refusal(self) -> None:
        self.transport.write(self._refusal)
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.let_go()
        super().connection_lost(exc)

    def let_go(self) -> None:
        """Release the header at once: the connection ends later."""
        self._heads.note(self, 0)
        self.headers = []
        self.scope = {}  # type: ignore[typeddict-item] # the collector comes seldom

    def on_message_begin(self) -> None:
        self._in_body = False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._moved = True
        self._fault = self._fault_of_head()
        if self._fault:
            raise ValueError(self._fault)  # the parser makes it an error of its own
        if self.parser.should_upgrade():
            return
        try:
            super().on_headers_complete()
        except Exception:
            self._fault = _cause("url")
            raise
        self._in_body = True
        self.headers = []  # what comes now goes there, and not into the request's

    def _fault_of_head(self) -> str:
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if len(self.headers) > MOST_FIELDS or size > MAX_HEAD:
            return "the header of this request is too large"
        if len(self.pipeline) >= MOST_AHEAD:
            return "too many requests are sent ahead of their responses"
        if self.parser.get_http_version() not in _VERSIONS:
            return _NO_VERSION
        return "the method CONNECT is not supported" if self.parser.get_method() == b"CONNECT" else ""

    def on_message_complete(self) -> None:
        if self._in_body:
            self._in_body = False
            super().on_message_complete()

    def on_body(self, body: bytes) -> None:
        self._moved = True
        super().on_body(body)

    def on_response_complete(self) -> None:
        is_last = not self.pipeline
        super().on_response_complete()
        if is_last and self._refusal:
            self._send_refusal()
        if not self.pipeline and self.cycle.response_complete:  # a head would stay as long as its client
            if self.scope is self.cycle.scope:  # and not that of the next request, of which some has come
                self.scope = {}  # type: ignore[typeddict-item]  # emptied for the garbage collector
            self.cycle.scope = {}  # type: ignore[typeddict-item]  # emptied for the garbage collector

    def resume_writing(self) -> None:
        self._drained = True
        super().resume_writing()

    def _too_long(self) -> bool:
        return self._stuck > MAX_HEAD or len(self.headers or ()) > MOST_FIELDS

    def look(self) -> None:
        """Close if the client has not sent a complete request, or has not read its response, for too long.

        Idle keep-alive connections have uvicorn's own timeout.
        """
        answering = self.cycle is not None and not self.cycle.response_complete
        waits = not answering and not self.pipeline and self.timeout_keep_alive_task is None
        self._looks = self._looks + 1 if waits and self.cycle is self._served else 0
        self._served = self.cycle
        if self._looks >= MOST_LOOKS:
            self.transport.close()
        self._look_at_reader()

    def _look_at_reader(self) -> None:
        unread = self.transport.get_write_buffer_size()
        reads = not unread or self._drained or unread <= self._unread - SLOWEST
        self._slow_looks = 0 if reads else self._slow_looks + 1
        self._unread, self._drained = unread, False
        if self._slow_looks > MOST_LOOKS:  # the first of them may have come just after the answer
            self.transport.abort()
