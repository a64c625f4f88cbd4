"""A small HTTP load generator: `python -m bench.load PORT CONNECTIONS REQUESTS PATH FILE [KEY]`.

Sends the body in FILE again and again over keep-alive connections, one request at a time on each, and prints how long
it took. Raw protocols, because a client library would cost more than the server that is measured.
"""

import asyncio
import json
import re
import sys
import time
from pathlib import Path

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Client(asyncio.Protocol):
    """One connection; takes requests from the shared budget until it is used up."""

    def __init__(self, request: bytes, budget: list[int], done: "asyncio.Future[None]") -> None:
        self._request = request
        self._budget = budget
        self._done = done
        self._received = bytearray()
        self._missing: int | None = None
        """Bytes of the answer still to come; None while its head is not complete."""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - for the type checker
        self._transport = transport
        self._next()

    def _next(self) -> None:
        if self._budget[0] == 0:
            self._transport.close()
            if not self._done.done():
                self._done.set_result(None)
            return
        self._budget[0] -= 1
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        # A long answer comes in many pieces: none of them is looked at twice, so that it costs the client little.
        if self._missing is not None:
            self._missing -= len(data)
        else:
            self._received += data
            if not self._read_head():
                return
        if not self._missing:
            self._received.clear()
            self._missing = None
            self._next()

    def _read_head(self) -> bool:
        """Find out how much is still to come; False while that is not known, or on an answer that means failure."""
        head, separator, body = self._received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head) if separator else None
        if length is None:
            return False
        if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201")):
            self._fail(f"answered {bytes(head[:40])!r} {bytes(body[:200])!r}")
            return False
        self._missing = int(length[1]) - len(body)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"connection closed: {exc}")

    def _fail(self, why: str) -> None:
        if not self._done.done():
            self._done.set_exception(RuntimeError(why))


async def send(port: int, connections: int, requests: int, path: str, body: bytes, key: str) -> float:
    """Return the seconds that all requests took."""
    lines = [
        f"POST {path} HTTP/1.1",
        f"host: 127.0.0.1:{port}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        *([f"authorization: Bearer {key}"] if key else []),
    ]
    request = "\r\n".join([*lines, "", ""]).encode() + body
    loop = asyncio.get_running_loop()
    budget = [requests]
    ends = [loop.create_future() for _ in range(connections)]
    started = time.perf_counter()

    def client(end: "asyncio.Future[None]") -> Client:
        return Client(request, budget, end)

    await asyncio.gather(
        *(loop.create_connection(lambda end=end: client(end), "127.0.0.1", port) for end in ends)  # type: ignore[misc]
    )
    await asyncio.gather(*ends)
    return time.perf_counter() - started


if __name__ == "__main__":
    port, connections, requests, path, file, *key = sys.argv[1:]
    body = Path(file).read_bytes()
    seconds = asyncio.run(send(int(port), int(connections), int(requests), path, body, "".join(key)))
    print(json.dumps({"seconds": seconds, "requests": int(requests)}))
