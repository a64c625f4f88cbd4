"""Requests to the application without a client: for tests that send thousands, or texts of 60,000 characters.

To take a URL apart and put it together again, a client needs ten times as long as the application for its answer.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from api.openapi import DocumentedApi


async def ask(
    app: DocumentedApi, method: str, path: str, headers: Mapping[str, str | bytes], query: str = "", body: bytes = b""
) -> tuple[int, bytes]:
    """Send one request with a path and a query that are quoted; returns the status and the body of the answer."""
    coming = iter([{"type": "http.request", "body": body, "more_body": False}])
    answer: dict[str, Any] = {"body": b""}

    async def receive() -> dict[str, Any]:
        return next(coming, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer["status"] = message["status"]
        else:
            answer["body"] += message.get("body", b"")

    sent = {"host": "127.0.0.1", "content-length": str(len(body))} | {name.lower(): headers[name] for name in headers}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "headers": [(name.encode(), text.encode() if isinstance(text, str) else text) for name, text in sent.items()],
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 123),
        "root_path": "",
    }
    await app(scope, receive, send)
    return answer["status"], answer["body"]
