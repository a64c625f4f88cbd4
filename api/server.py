"""The process behind `workron api`: one uvicorn server; a first stop signal lets it finish, a second one does not."""

import asyncio
import errno
import logging
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from api.app import create_app
from api.http.listener import Listener
from api.http.protocol import LOOK_EVERY_S, Heads, LimitedHttp, Seldom
from workron.errors import StartupError
from workron.local import instances
from workron.local.addresses import http_status, http_url, local_host
from workron.runtime import gc_tuning, lifeline, logs
from workron.runtime.health import answering
from workron.runtime.logger import log
from workron.runtime.outage import outlast
from workron.runtime.signals import StopSignals
from workron.settings import Settings
from workron.store import Store

GRACE_S: Final = 8
"""Time for open requests when the server stops: less than the 10 s of `docker stop`."""
_KEEP_ALIVE_S: Final = 75
"""Longer than clients keep idle connections, so that the server never closes one during a request."""
_BACKLOG: Final = 2048
_TICK_S: Final = 0.1
"""How often uvicorn calls `on_tick`."""


def run(settings: Settings) -> int:
    """Serve until a stop signal; return the exit code. Raises StartupError and others before it serves."""
    lifeline.watch()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # every parked client holds a connection
    logs.configure(settings, process="api")
    return asyncio.run(_run(settings))


async def _run(settings: Settings) -> int:
    key = instances.api_key(settings)
    listener = bind(settings.host, settings.port)
    try:
        with StopSignals() as signals:
            async with answering("api") as health, Store.connect(settings) as store:
                if await outlast(signals.stopping, lambda: _prepare(store, settings)):
                    health.check = partial(not_ready, *listener.getsockname()[:2])
                    await _serve_from(store, settings, key.value if key else None, listener, signals)
    finally:
        listener.close()
    return 0


async def not_ready(host: str, port: int) -> str | None:
    """Return why clients can't submit jobs, None if they can: a request is sent to the listening socket."""
    status = await http_status(local_host(host), port, "/readyz")
    return None if (status or "").startswith("200 ") else f"/readyz: {status or 'no answer'}"


async def _prepare(store: Store, settings: Settings) -> bool:
    server_info = await store.check(allow_eviction=settings.allow_eviction)
    await store.limit_all(settings)
    if server_info.appendonly is False:
        log.warning("redis has no append-only file: accepted jobs may be lost if it crashes")
    if settings.unfenced == "always":
        log.warning("reports without a fence are always accepted: a worker that lost a job may still end it")
    return True


async def _serve_from(
    store: Store, settings: Settings, key: str | None, listener: socket.socket, signals: StopSignals
) -> None:
    app = create_app(store, settings, key)
    gc_tuning.relax()
    try:
        await serve(app, app.state.context.stopping, listener, signals)
    finally:
        await app.state.context.aclose()


async def serve(app: ASGIApp, stopping: asyncio.Event, listener: socket.socket, signals: StopSignals) -> None:
    """Serve until the first signal, then finish open requests, parked ones at once. A second signal stops that.

    `stopping` is the event of the application.
    """
    server = Server(app)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    log.info("api ready", url=http_url(*listener.getsockname()[:2]))
    await _first(serving, signals.stopping)
    server.should_exit = True
    stopping.set()
    await _first(serving, signals.now)
    if not serving.done():
        serving.cancel()  # nothing is lost: this process holds no state
    with suppress(asyncio.CancelledError):
        await serving
    for listening in server.servers:
        listening.close()
    log.info("api stopped")


class Server(uvicorn.Server):
    """uvicorn with our settings and signal handling."""

    servers: list[asyncio.Server]

    def __init__(self, app: ASGIApp) -> None:
        self.servers = []
        super().__init__(
            uvicorn.Config(
                app,
                http=partial(LimitedHttp, heads=Heads()),  # type: ignore[arg-type] # it only calls it
                loop="asyncio",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        logging.getLogger("uvicorn.error").filters[:] = [Seldom()]

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def on_tick(self, counter: int) -> bool:
        if counter % round(LOOK_EVERY_S / _TICK_S) == 0:
            for connection in tuple(self.server_state.connections):
                if isinstance(connection, LimitedHttp):
                    connection.look()
        return await super().on_tick(counter)


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket; raise StartupError with the reason if that fails."""
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listener = Listener(family, kind, protocol)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StartupError(f"can't listen on {host!r}: {reason}; choose another address with --host") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        hint = "choose another port with --port" if error.errno == errno.EADDRINUSE else "see --host and --port"
        raise StartupError(f"can't listen on {host} port {port}: {error.strerror}; {hint}") from error
    return listener


async def _first(task: "asyncio.Task[None]", event: asyncio.Event) -> None:
    """Return when the task has ended or the event is set."""
    waiting = asyncio.ensure_future(event.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
