"""The address of the API, and its URL for this machine."""

import asyncio
import errno
import socket
from typing import Final

from workron.errors import StartupError

_POLL_S: Final = 0.05
_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 — where to reach it locally


async def free_port(host: str, port: int, *, patience_s: float = 0.0) -> int:
    """Return the port, or a free one for 0, once it is available; raise StartupError if it stays taken."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + patience_s
    while True:
        try:
            return _bindable(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise StartupError(f"can't listen on {host}, port {port}: {error.strerror}") from error
            if loop.time() >= until_s:
                raise StartupError(f"port {port} on {host} is taken; choose another one with --port") from error
        await asyncio.sleep(_POLL_S)


def _bindable(host: str, port: int) -> int:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        return int(probe.getsockname()[1])


def local_host(host: str) -> str:
    """Return the address by which this machine reaches a server that listens on `host`."""
    return _ANYWHERE.get(host, host)


def http_url(host: str, port: int) -> str:
    """Return the URL of the API for clients on this machine."""
    reached = local_host(host)
    return f"http://[{reached}]:{port}" if ":" in reached else f"http://{reached}:{port}"


async def http_ok(host: str, port: int, path: str) -> bool:
    """Return whether `GET path` returns 200 within two seconds."""
    return (await http_status(host, port, path) or "").startswith("200 ")


async def http_status(host: str, port: int, path: str) -> str | None:
    """Return the status line of `GET path`, such as `200 OK`; None without an answer within two seconds."""
    try:
        async with asyncio.timeout(2):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                name = http_url(host, port).removeprefix("http://")
                writer.write(f"GET {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
                return (await reader.readline()).decode("latin-1").strip().partition(" ")[2] or None
            finally:
                writer.close()
    except (OSError, ValueError, TimeoutError):
        return None
