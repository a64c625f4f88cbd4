"""HTTP between workers and API servers: requests of the real client to the real application, over a network of ours."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol
from unittest import mock
from urllib.parse import urlencode

import httpx2

from api.app import create_app
from tests.simulation.fault_plan import Fate, Weather
from tests.simulation.timeline import Process, Timeline
from workron.settings import Settings
from workron.store import Store

URL: Final = "http://127.0.0.1"
_HEADERS: Final = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
_ADDRESS: Final = ("127.0.0.1", 80)


class ApiServer:
    """A process that serves the real application; workers reach it by HTTP, clients reach its store."""

    def __init__(self, process: Process, store: Store, settings: Settings) -> None:
        self.process = process
        self.store = store
        with _inside(process):
            self._app = create_app(store, settings, None)

    async def serve(self, request: "Request", gone: asyncio.Event) -> httpx2.Response:
        """Answer a request; `gone` is set when its client hangs up."""
        body = iter([{"type": "http.request", "body": request.body, "more_body": False}])
        status, content = 500, b""

        async def receive() -> Any:
            for message in body:
                return message
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            nonlocal status, content
            status = message.get("status", status)
            content += message.get("body", b"")

        await self._app(request.scope(), receive, send)
        return httpx2.Response(status, headers={"content-type": "application/problem+json"}, content=content)


class Servers(Protocol):
    """Where requests go to."""

    timeline: Timeline
    weather: Weather

    def some_api(self) -> ApiServer | None: ...

    def note(self, who: str, what: str, outcome: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it is sent."""

    method: str
    path: str
    query: bytes
    body: bytes

    def scope(self) -> dict[str, Any]:
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "http",
            "root_path": "",
            "method": self.method,
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": self.query,
            "headers": _HEADERS,
            "client": _ADDRESS,
            "server": _ADDRESS,
        }


class Http:
    """What `HttpSource` is given in place of `httpx2.AsyncClient`: the requests of one process."""

    def __init__(self, servers: Servers, process: Process) -> None:
        self._servers = servers
        self._process = process
        self._timeline = servers.timeline
        self._weather = servers.weather

    async def request(
        self, method: str, path: str, *, content: bytes | None, params: Any, timeout: httpx2.Timeout
    ) -> httpx2.Response:
        """Send a request to one of the servers, and wait for its answer as long as the client would."""
        fate, server = self._weather.fate(), self._servers.some_api()
        if self._process.dying or server is None or fate is Fate.REFUSED:
            await asyncio.sleep(0)
            raise httpx2.ConnectError("connection refused")
        request = Request(method, path, urlencode(params or {}).encode(), content or b"")
        if self._weather.largest_body is not None and len(request.body) > self._weather.largest_body:
            await asyncio.sleep(self._weather.delay_s())
            self._servers.note("proxy", f"{method} {path} {len(request.body)} bytes", f"413 for {self._process.name}")
            return httpx2.Response(413, text="too large")
        answer: asyncio.Future[httpx2.Response] = self._process.loop.create_future()
        gone = asyncio.Event()
        late = self._weather.long_delay_s() if fate in (Fate.LATE, Fate.STALLED) else 0.0
        broken = httpx2.ReadError("connection reset")

        about = f"{method} {path} {request.body.decode()[:150]}"

        def begin() -> None:
            self._servers.note(server.process.name, about, f"from {self._process.name}")
            server.process.loop.create_task(server.serve(request, gone)).add_done_callback(finish)

        def finish(task: asyncio.Task[httpx2.Response]) -> None:
            if not task.cancelled():
                result = task.exception() or task.result()
                how = (
                    f"{result.status_code} {result.text[:150]}" if isinstance(result, httpx2.Response) else repr(result)
                )
                self._servers.note(server.process.name, about, f"{'' if fate is Fate.FINE else fate.name + ': '}{how}")
                self._deliver(self._process, lambda: settle(answer, broken if fate is Fate.LOST else result))

        self._deliver(server.process, begin, late)
        server.process.at_death.append(lambda: self._deliver(self._process, lambda: settle(answer, broken)))
        if fate is Fate.LATE:
            self._deliver(self._process, lambda: settle(answer, broken))
        try:
            async with asyncio.timeout(timeout.read):
                return await answer
        except TimeoutError as error:
            raise httpx2.ReadTimeout("no answer") from error
        finally:
            self._deliver(server.process, gone.set)

    def _deliver(self, to: Process, what: Callable[[], None], late_s: float = 0.0) -> None:
        handle = asyncio.Handle(what, (), to.loop)
        self._timeline.push(self._timeline.now + self._weather.delay_s() + late_s, to, handle)

    async def aclose(self) -> None:
        """Nothing is held."""


def settle(answer: asyncio.Future[Any], value: Any) -> None:
    """Give a future its result, or the error that came instead, unless nobody waits any more."""
    if answer.done():
        return
    if isinstance(value, BaseException):
        answer.set_exception(value)
    else:
        answer.set_result(value)


@contextmanager
def http_by(servers: Servers) -> Iterator[None]:
    """Have whoever makes an HTTP client get one of ours."""

    def client(**_options: Any) -> Http:
        assert isinstance(servers.timeline.running, Process)
        return Http(servers, servers.timeline.running)

    with mock.patch.object(httpx2, "AsyncClient", client):
        yield


@contextmanager
def _inside(process: Process) -> Iterator[None]:
    """Make something as the process would, in its event loop."""
    asyncio._set_running_loop(process.loop)
    with process.timeline.as_host(process):
        yield
    asyncio._set_running_loop(None)
