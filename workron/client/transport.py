"""How a client talks to the API: requests are repeated through an outage, error answers become exceptions."""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from socket import gaierror
from ssl import SSLError
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from workron.client.connection import Request, Response, Server, TransportError
from workron.errors import ApiProblem, ApiUnreachable, WorkronError

if TYPE_CHECKING:
    from workron.models.output_stream import Event

PATIENCE_S: Final = 60.0
ANSWER_S: Final = 30.0
"""How long an answer may take, beyond the wait that was asked for."""
_SILENCE_S: Final = 60.0
"""After so long without a byte a followed stream is opened again: the API says more often that it is there."""
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 5.0
_AWAY: Final = frozenset({429, 502, 503, 504})


class _TryFailedError(Exception):
    """Nothing came of one try; the next one makes sense after `pause_s`, unless this is final."""

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
        self._server = Server(self.url, key)

    def close(self) -> None:
        self._server.close()

    def document(
        self,
        method: str,
        path: str,
        params: Mapping[str, str | Sequence[str]] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = ANSWER_S,
    ) -> Any:
        """Return the JSON document that the API answers, None if it has nothing to say (204)."""
        response, data = self._send(Request(method, _target(path, params), timeout_s, headers or {}, body))
        if response.status == 204:
            return None
        try:
            return json.loads(data)
        except ValueError:
            raise self._not_ours(response) from None

    def stream(self, path: str) -> Iterator[bytes]:
        """Yield the bytes of the answer as they come."""
        response, _ = self._send(Request("GET", path, ANSWER_S), stream=True)
        try:
            yield from response.chunks()
        except TransportError as error:
            raise self._unreachable(error) from error
        finally:
            response.close()

    def events(self, path: str, params: Mapping[str, str]) -> "Iterator[Event]":
        """Yield the events of the answer as they come; a stream that breaks off ends quietly."""
        from workron.models.output_stream import CONTENT_TYPE, read_events

        request = Request("GET", _target(path, params), _SILENCE_S, {"Accept": CONTENT_TYPE})
        response, _ = self._send(request, stream=True)
        try:
            if not response.content_type.startswith(CONTENT_TYPE):
                raise self._not_ours(response)
            yield from read_events(response.chunks())
        except TransportError:
            return
        except (ValueError, KeyError, TypeError) as error:
            raise self._not_ours(response) from error
        finally:
            response.close()

    def _send(self, request: Request, *, stream: bool = False) -> tuple[Response, bytes]:
        """Return the answer and its body (left to the caller if it is a stream), tried until patience ends.

        Raises an answer that is an error.
        """
        began_at, backoff_s, told = time.monotonic(), _FIRST_PAUSE_S, ""
        while True:
            try:
                answer = self._try(request, stream=stream)
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
                return answer

    def _try(self, request: Request, *, stream: bool) -> tuple[Response, bytes]:
        try:
            response = self._server.send(request)
            good = response.status // 100 == 2
            data = b"" if good and stream else response.read()
        except TransportError as error:
            raise _TryFailedError(self._unreachable(error), final=_is_final(error)) from error
        if good:
            return response, data
        problem = self._problem(response, data)
        if response.status in _AWAY:
            raise _TryFailedError(problem, pause_s=_retry_after_s(response), final=_never_fits(problem))
        raise problem

    def _problem(self, response: Response, data: bytes) -> WorkronError:
        if response.content_type.startswith("application/problem+json"):
            return self._unauthorized() if response.status == 401 else _decode_problem(response, data)
        if response.status in _AWAY:
            return ApiUnreachable(f"can't reach the API at {self.url}: answered {response.status} {response.reason}")
        return self._not_ours(response)

    def _unauthorized(self) -> ApiProblem:
        wrong = "refused the key: set WORKRON_API_KEY to its own" if self._key else "wants a key: set WORKRON_API_KEY"
        return ApiProblem(f"the API at {self.url} {wrong}", status=401, slug="unauthorized")

    def _not_ours(self, response: Response) -> ApiProblem:
        kind = response.content_type or "no content type"
        return ApiProblem(
            f"{self.url} does not answer like a Workron API: {response.status} {response.reason}, {kind}",
            status=response.status,
            slug="",
        )

    def _unreachable(self, error: BaseException) -> ApiUnreachable:
        return ApiUnreachable(f"can't reach the API at {self.url}: {cause_of(error)}")

    def _notices(self, error: WorkronError) -> tuple[str, str]:
        """What to say when this begins, and when it is over."""
        if _is_full(error):
            return f"{error}; waiting for room{_for_how_long(self._room_patience_s)}", "there was room"
        return f"{error}; trying again{_for_how_long(self.patience_s)}", f"{self.url} answers again"


def _jittered(backoff_s: float, retry_after_s: float | None) -> float:
    """Return how long to wait: never less than the API asks for, and not all clients at once."""
    import random

    if retry_after_s is None:
        return backoff_s * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
    return retry_after_s * random.uniform(1.0, 1.2)  # noqa: S311 - jitter, not a secret


def _for_how_long(patience_s: float) -> str:
    return "" if math.isinf(patience_s) else f" for {patience_s:g} s"


def _is_full(error: WorkronError) -> bool:
    """Tell whether there is no room for new work, in a queue or in Redis' memory."""
    return isinstance(error, ApiProblem) and error.slug in {"queue-full", "store-full"}


def _never_fits(error: WorkronError) -> bool:
    """Tell whether a submission is larger than the limit, so that there never is room for it."""
    return (
        isinstance(error, ApiProblem) and error.slug == "queue-full" and error.members["size"] > error.members["limit"]
    )


def _is_final(error: BaseException) -> bool:
    """Tell whether trying again is pointless: unknown host, certificate refused."""
    return any(isinstance(cause, (gaierror, SSLError)) for cause in _chain(error))


def cause_of(error: BaseException) -> str:
    """Return the operating system's words where there are any, e.g. `connection refused`."""
    for cause in _chain(error):
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror.lower()
    return str(error) or type(error).__name__


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _retry_after_s(response: Response) -> float | None:
    value = response.header("retry-after")
    return float(value) if value.isdecimal() else None


def _target(path: str, params: Mapping[str, str | Sequence[str]] | None) -> str:
    return f"{path}?{urlencode(params, doseq=True)}" if params else path


def _decode_problem(response: Response, data: bytes) -> ApiProblem:
    """Return the error that the answer tells, in one line; faults of fields are told with their place."""
    document = json.loads(data)
    slug = str(document.get("type", "")).rpartition("/")[2]
    message = str(document.get("detail") or document.get("title") or response.reason)
    errors = document.get("errors")
    if errors:
        message = "; ".join(f"{_field(error['loc'])}: {error['msg']}" for error in errors)
    return ApiProblem(message, status=response.status, slug=slug, members=document)


def _field(location: list[str | int]) -> str:
    """Return `jobs[3].command` for `["body", "jobs", 3, "command"]`."""
    parts = location[1:] if location[:1] in (["body"], ["query"], ["path"], ["header"]) else location
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return path.removeprefix(".") or "request"
