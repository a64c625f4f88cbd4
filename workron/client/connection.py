"""HTTP/1.1 to one server, over `http.client`: connections are kept, proxies and certificates are the environment's.

A larger HTTP library would take longer to import than most commands take in all.
"""

import http.client
import os
import select
import ssl
import sys
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from socket import AF_INET, AF_INET6, inet_pton, socket
from typing import Final, NamedTuple
from urllib.parse import SplitResult, quote, unquote, urlsplit

from workron.errors import InvalidRequest

TransportError: Final = (OSError, http.client.HTTPException)
"""What `send`, `read` and `chunks` raise when the connection fails."""
ANSWER_S: Final = 30.0
"""Timeout of connecting; and of a response, in addition to the requested wait."""
_PIECE: Final = 65_536
_IDLE_S: Final = 5.0
"""Maximum idle time of a connection that is reused: a firewall may drop an older one without closing it."""
_IN_A_PATH: Final = "/%:@!$&'()*+,;=~"
_LOOPBACK: Final = ((AF_INET, b"\x7f"), (AF_INET6, bytes(15) + b"\x01"))


def is_loopback(url: str) -> bool:
    """Tell whether this URL points to the machine we are on."""
    host = urlsplit(url).hostname or ""
    for family, prefix in _LOOPBACK:
        with suppress(OSError, ValueError):
            if inet_pton(family, host).startswith(prefix):
                return True
    return host == "localhost"


def check_url(url: str) -> SplitResult:
    """Return the parts of the URL of an API; raise InvalidRequest if it can't be one."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and (parts.hostname or "").encode("idna") and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        given = "" if "@" in url else f", not {url!r}"  # it may hold a password
        raise InvalidRequest(f"the URL of the API must be like http://127.0.0.1:8080{given}")
    return parts


def without_login(url: str) -> str:
    """Return a URL for messages: without user and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


class Request(NamedTuple):
    """A request. `timeout_s` limits each wait for the server."""

    method: str
    target: str
    timeout_s: float
    headers: Mapping[str, str] = {}
    body: bytes | None = None


class _Answer(http.client.HTTPResponse):
    """The final response: skips informational ones (1xx), of which `http.client` skips only 100."""

    def begin(self) -> None:
        super().begin()
        while self.status // 100 == 1:
            self.headers = self.msg = None  # type: ignore[assignment]  # makes `begin` read the next one
            super().begin()


class Response:
    """A response; its body is read whole or in chunks. Closing it keeps the connection if the body is complete."""

    def __init__(self, server: "Server", connection: http.client.HTTPConnection) -> None:
        self._server = server
        self._connection = connection
        self._answer = connection.getresponse()
        self.status: Final = self._answer.status
        self.reason: Final = self._answer.reason
        self.content_type: Final = self.header("content-type")

    def header(self, name: str) -> str:
        """Return a header of the response, empty if there is none."""
        return str(self._answer.getheader(name, ""))

    def read(self) -> bytes:
        """Return the whole body, and close the response."""
        try:
            return self._answer.read()
        finally:
            self.close()

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of the body as they arrive."""
        while data := self._answer.read1(_PIECE):
            yield data
        if missing := self._answer.length:
            raise http.client.IncompleteRead(b"", missing)

    def close(self) -> None:
        complete = self._answer.isclosed() or self._answer.length == 0
        self._answer.close()
        self._server.keep(self._connection) if complete else self._connection.close()


class Server:
    """Connections to the server of a URL; each carries one request at a time."""

    def __init__(self, url: str, key: str | None) -> None:
        self._url = check_url(url)
        self._proxy = None if is_loopback(url) else _proxy_for(self._url)
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "workron"}
        if key or self._url.username:
            self._headers["Authorization"] = f"Bearer {key}" if key else _basic(self._url)
        self._base = quote(self._url.path.rstrip("/"), _IN_A_PATH, errors="surrogateescape")
        if self._proxy and self._url.scheme == "http":
            self._base = f"http://{self._url.netloc.rpartition('@')[2]}{self._base}"
            if self._proxy.username:
                self._headers["Proxy-Authorization"] = _basic(self._proxy)
        self._tls: ssl.SSLContext | None = None
        self._idle: list[tuple[http.client.HTTPConnection, float]] = []

    def send(self, request: Request) -> Response:
        """Send the request and return the response once its header has arrived."""
        connection = self._connection(request.timeout_s)
        try:
            if connection.sock is None:
                connection.connect()
            connection.sock.settimeout(request.timeout_s)
            self._write(connection, request)
            return Response(self, connection)
        except BaseException:
            connection.close()
            raise

    def keep(self, connection: http.client.HTTPConnection) -> None:
        """Keep a connection for the next request."""
        self._idle.append((connection, time.monotonic()))

    def close(self) -> None:
        while taken := self._take():
            taken[0].close()

    def _take(self) -> tuple[http.client.HTTPConnection, float] | None:
        with suppress(IndexError):  # threads may share a client
            return self._idle.pop()
        return None

    def _write(self, connection: http.client.HTTPConnection, request: Request) -> None:
        try:
            # A server that refuses a body may close the connection before it has read it: the answer says why.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.request(
                    request.method, self._base + request.target, request.body, {**self._headers, **request.headers}
                )
        except (ValueError, UnicodeError):
            raise InvalidRequest("a key or a header of the request holds characters that HTTP can't carry") from None

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        """Return a connection that was idle for a short time and that the server has not closed, else a new one."""
        while taken := self._take():
            connection, since = taken
            if connection.sock and time.monotonic() - since < _IDLE_S and not _readable(connection.sock):
                return connection
            connection.close()
        connection = self._new(min(timeout_s, ANSWER_S))
        connection.response_class = _Answer
        return connection

    def _new(self, timeout_s: float) -> http.client.HTTPConnection:
        peer = self._proxy or self._url
        host, port = str(peer.hostname), peer.port
        if "https" not in {self._url.scheme, peer.scheme}:
            return http.client.HTTPConnection(host, port or 80, timeout=timeout_s)
        self._tls = self._tls or _trusted()
        default = 443 if peer.scheme == "https" else 80
        connection = http.client.HTTPSConnection(host, port or default, timeout=timeout_s, context=self._tls)
        if self._proxy and self._url.scheme == "https":
            headers = {"Proxy-Authorization": _basic(self._proxy)} if self._proxy.username else {}
            connection.set_tunnel(str(self._url.hostname), self._url.port or 443, headers)
        return connection


def _readable(sock: socket) -> bool:
    """Tell whether there is anything to read; on an idle connection that is its end."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _basic(url: SplitResult) -> str:
    """Return the Authorization header for user and password of a URL."""
    words = f"{unquote(url.username or '')}:{unquote(url.password or '')}"
    return f"Basic {b64encode(words.encode()).decode()}"


def _trusted() -> ssl.SSLContext:
    """Return the authorities that SSL_CERT_FILE and SSL_CERT_DIR name, by default those of the system."""
    if os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR"):
        return ssl.create_default_context()
    import truststore

    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _proxy_for(url: SplitResult) -> SplitResult | None:
    """Return the proxy that HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY say, on macOS also the system's."""
    if sys.platform != "darwin" and not any(name.lower().endswith("_proxy") for name in os.environ):
        return None  # what follows takes 20 ms to import
    from urllib.request import getproxies, proxy_bypass

    named = getproxies()
    proxy = named.get(url.scheme) or named.get("all")
    if not proxy or proxy_bypass(url.netloc.rpartition("@")[2]):
        return None
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    usable = {"http"} if url.scheme == "https" else {"http", "https"}
    if parts.scheme not in usable or not parts.hostname:
        raise InvalidRequest(f"the proxy for {url.scheme}:// in the environment is of no use here: name an http:// one")
    return parts
