"""A client's transport: retries requests through an outage, turns error responses into exceptions."""

import math
import random
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2

from workron.errors import ApiProblem, ApiUnreachable, WorkronError
from workron.models.output_stream import CONTENT_TYPE, Event, read_events

PATIENCE_S: Final = 60.0
ANSWER_S: Final = 30.0
"""Timeout of a response, in addition to the requested wait."""
_SILENCE_S: Final = 60.0
"""A followed stream is reopened after this silence: the API sends keep-alives more often."""
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 5.0
_AWAY: Final = frozenset({429, 502, 503, 504})


def is_loopback(url: str) -> bool:
    """Return whether this URL points to this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class _TryFailedError(Exception):
    """A failed try; the next one is due after `pause_s`, unless this one is final."""

    def __init__(self, error: WorkronError, *, pause_s: float | None = None, final: bool = False) -> None:
        super().__init__(error)
        self.error = error
        self.pause_s = pause_s
        self.final = final


class Transport:
    """One connection pool to one API server."""

    def __init__(
        self, url: str, key: str | None, *, patience_s: float, room_patience_s: float, notify: Callable[[str], None]
    ) -> None:
        self.url = url.rstrip("/")
        self.patience_s = patience_s
        self._room_patience_s = room_patience_s
        self._key = key
        self._notify = notify
        self._http = httpx2.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=ANSWER_S,
            # Certificates take 70 ms to load, and plain http needs none.
            verify=self.url.startswith("https:"),
            # A proxy named in the environment can't reach what listens on this machine.
            trust_env=not is_loopback(self.url),
        )

    def close(self) -> None:
        self._http.close()

    def document(self, method: str, path: str, **parts: Any) -> Any:
        """Return the JSON document of the response, None for 204."""
        response = self._send(self._http.build_request(method, path, **parts))
        if response.status_code == 204:
            return None
        try:
            return response.json()
        except ValueError:
            raise self._not_ours(response) from None

    def stream(self, path: str) -> Iterator[bytes]:
        """Yield the bytes of the response as they arrive."""
        response = self._send(self._http.build_request("GET", path), stream=True)
        try:
            yield from response.iter_bytes()
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error
        finally:
            response.close()

    def events(self, path: str, params: Mapping[str, str]) -> Iterator[Event]:
        """Yield the events of the response as they arrive; a broken stream ends quietly."""
        headers, timeout = {"Accept": CONTENT_TYPE}, httpx2.Timeout(ANSWER_S, read=_SILENCE_S)
        asking = self._http.build_request("GET", path, params=params, headers=headers, timeout=timeout)
        response = self._send(asking, stream=True)
        try:
            if not response.headers.get("content-type", "").startswith(CONTENT_TYPE):
                raise self._not_ours(response)
            yield from read_events(response.iter_bytes())
        except (ValueError, KeyError, TypeError) as error:
            raise self._not_ours(response) from error
        except httpx2.TransportError:
            return
        finally:
            response.close()

    def _send(self, request: httpx2.Request, *, stream: bool = False) -> httpx2.Response:
        """Send until there is a response or patience ends; raise error responses."""
        began_at, backoff_s, told = time.monotonic(), _FIRST_PAUSE_S, ""
        while True:
            try:
                response = self._try(request, stream=stream)
            except _TryFailedError as failure:
                patience_s = self._room_patience_s if _is_full(failure.error) else self.patience_s
                pause_s = _jittered(backoff_s, failure.pause_s)
                if failure.final or time.monotonic() + pause_s > began_at + patience_s:
                    raise failure.error from failure
                begin, end = self._notices(failure.error)
                if told != end:
                    self._notify(begin)
                told, backoff_s = end, min(2 * backoff_s, _LONGEST_PAUSE_S)
                time.sleep(pause_s)
            else:
                if told:
                    self._notify(told)
                return response

    def _try(self, request: httpx2.Request, *, stream: bool) -> httpx2.Response:
        try:
            response = self._http.send(request, stream=stream)
            if not response.is_success:
                response.read()
        except httpx2.TransportError as error:
            raise _TryFailedError(self._unreachable(error), final=_is_final(error)) from error
        if response.is_success:
            return response
        problem = self._problem(response)
        if response.status_code in _AWAY:
            raise _TryFailedError(problem, pause_s=_retry_after_s(response), final=_never_fits(problem))
        raise problem

    def _problem(self, response: httpx2.Response) -> WorkronError:
        if response.headers.get("content-type", "").startswith("application/problem+json"):
            return self._unauthorized() if response.status_code == 401 else _decode_problem(response)
        if response.status_code in _AWAY:
            return ApiUnreachable(
                f"can't reach the API at {self.url}: answered {response.status_code} {response.reason_phrase}"
            )
        return self._not_ours(response)

    def _unauthorized(self) -> ApiProblem:
        wrong = (
            "rejected the key: set WORKRON_API_KEY to a valid one"
            if self._key
            else "requires a key: set WORKRON_API_KEY"
        )
        return ApiProblem(f"the API at {self.url} {wrong}", status=401, slug="unauthorized")

    def _not_ours(self, response: httpx2.Response) -> ApiProblem:
        kind = response.headers.get("content-type", "no content type")
        return ApiProblem(
            f"{self.url} does not answer like a Workron API: {response.status_code} {response.reason_phrase}, {kind}",
            status=response.status_code,
            slug="",
        )

    def _unreachable(self, error: httpx2.TransportError) -> ApiUnreachable:
        return ApiUnreachable(f"can't reach the API at {self.url}: {cause_of(error)}")

    def _notices(self, error: WorkronError) -> tuple[str, str]:
        """Messages for the begin and the end of this failure."""
        if _is_full(error):
            return f"{error}; waiting for room{_for_how_long(self._room_patience_s)}", "room available"
        return f"{error}; retrying{_for_how_long(self.patience_s)}", f"{self.url} is available again"


def _jittered(backoff_s: float, retry_after_s: float | None) -> float:
    """Return the pause before a retry: at least what the API asks for, with jitter."""
    if retry_after_s is None:
        return backoff_s * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
    return retry_after_s * random.uniform(1.0, 1.2)  # noqa: S311 - jitter, not a secret


def _for_how_long(patience_s: float) -> str:
    return "" if math.isinf(patience_s) else f" for {patience_s:g} s"


def _is_full(error: WorkronError) -> bool:
    """Return whether there is no room for new work, in a queue or in Redis' memory."""
    return isinstance(error, ApiProblem) and error.slug in {"queue-full", "store-full"}


def _never_fits(error: WorkronError) -> bool:
    """Return whether a submission exceeds the limit, so that it can never fit."""
    return (
        isinstance(error, ApiProblem) and error.slug == "queue-full" and error.members["size"] > error.members["limit"]
    )


def _is_final(error: BaseException) -> bool:
    """Return whether a retry is pointless: unknown host, certificate rejected, invalid URL."""
    if isinstance(error, (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError)):
        return True
    return any(isinstance(cause, (socket.gaierror, ssl.SSLError)) for cause in _chain(error))


def cause_of(error: BaseException) -> str:
    """Return the operating system's message if there is one, e.g. `connection refused`."""
    for cause in _chain(error):
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror.lower()
    return str(error) or type(error).__name__


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _retry_after_s(response: httpx2.Response) -> float | None:
    value = response.headers.get("retry-after", "")
    return float(value) if value.isdecimal() else None


def _decode_problem(response: httpx2.Response) -> ApiProblem:
    """Return the error of the response in one line; field errors with their location."""
    document = response.json()
    slug = str(document.get("type", "")).rpartition("/")[2]
    message = str(document.get("detail") or document.get("title") or response.reason_phrase)
    errors = document.get("errors")
    if errors:
        message = "; ".join(f"{_field(error['loc'])}: {error['msg']}" for error in errors)
    return ApiProblem(message, status=response.status_code, slug=slug, members=document)


def _field(location: list[str | int]) -> str:
    """Return `jobs[3].command` for `["body", "jobs", 3, "command"]`."""
    parts = location[1:] if location[:1] in (["body"], ["query"], ["path"], ["header"]) else location
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return path.removeprefix(".") or "request"
