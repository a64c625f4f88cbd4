"""A client's transport: retries requests through an outage, turns error responses into exceptions."""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from socket import gaierror
from ssl import SSLError
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from workron.amounts import MOST_NAMED, counted
from workron.client.connection import ANSWER_S, Request, Response, Server, TransportError, without_login
from workron.errors import ApiProblem, ApiUnreachable, InvalidRequest, WorkronError

if TYPE_CHECKING:
    from workron.models.output_stream import Event

PATIENCE_S: Final = 60.0
_SILENCE_S: Final = 60.0
"""A followed stream is reopened after this silence: the API sends keep-alives more often."""
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 5.0
_AWAY: Final = frozenset({429, 502, 503, 504})


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
        self.url = without_login(url.rstrip("/"))
        self.patience_s = patience_s
        self._room_patience_s = room_patience_s
        self._key = key
        self._notify = notify
        self._server = Server(url.rstrip("/"), key)

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
        """Return the JSON document of the response, None for 204."""
        response, data = self._send(Request(method, _target(path, params), timeout_s, headers or {}, body))
        if response.status == 204:
            return None
        try:
            return json.loads(data)
        except ValueError:
            raise self._not_ours(response) from None

    def stream(self, path: str) -> Iterator[bytes]:
        """Yield the bytes of the response as they arrive."""
        response, _ = self._send(Request("GET", path, ANSWER_S), stream=True)
        try:
            yield from response.chunks()
        except TransportError as error:
            raise self._unreachable(error) from error
        finally:
            response.close()

    def events(self, path: str, params: Mapping[str, str]) -> "Iterator[Event]":
        """Yield the events of the response as they arrive; a broken stream ends quietly."""
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
        """Return the response and its body (empty for a stream), retried until patience ends; raise error responses."""
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
            try:
                return self._unauthorized() if response.status == 401 else _decode_problem(response, data)
            except (ValueError, KeyError, TypeError, AttributeError):
                return self._not_ours(response)
        if response.status in _AWAY:
            return ApiUnreachable(f"can't reach the API at {self.url}: answered {response.status} {response.reason}")
        return self._not_ours(response)

    def _unauthorized(self) -> ApiProblem:
        wrong = (
            "rejected the key: set WORKRON_API_KEY to a valid one"
            if self._key
            else "requires a key: set WORKRON_API_KEY"
        )
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
        """Messages for the begin and the end of this failure."""
        if _is_full(error):
            return f"{error}; waiting for room{_for_how_long(self._room_patience_s)}", "room available"
        return f"{error}; retrying{_for_how_long(self.patience_s)}", f"{self.url} is available again"


def _jittered(backoff_s: float, retry_after_s: float | None) -> float:
    """Return the pause before a retry: at least what the API asks for, with jitter."""
    import random

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
    """Return whether a retry is pointless: unknown host, certificate rejected."""
    return any(isinstance(cause, (gaierror, SSLError)) for cause in _chain(error))


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


def _retry_after_s(response: Response) -> float | None:
    value = response.header("retry-after")
    return float(value) if value.isdecimal() else None


def _target(path: str, params: Mapping[str, str | Sequence[str]] | None) -> str:
    try:
        return f"{path}?{urlencode(params, doseq=True)}" if params else path
    except UnicodeEncodeError:
        raise InvalidRequest("the request holds text that is not valid Unicode") from None


def _decode_problem(response: Response, data: bytes) -> ApiProblem:
    """Return the error of the response in one line; field errors with their location."""
    document = json.loads(data)
    slug = str(document.get("type", "")).rpartition("/")[2]
    message = str(document.get("detail") or document.get("title") or response.reason)
    errors = document.get("errors")
    if errors:
        named = [f"{_field(error['loc'])}: {error['msg']}" for error in errors[:MOST_NAMED]]
        rest = len(errors) - len(named)
        message = "; ".join([*named, *([f"and {counted(rest, 'more error')}"] if rest else [])])
    return ApiProblem(message, status=response.status, slug=slug, members=document)


def _field(location: list[str | int]) -> str:
    """Return `jobs[3].command` for `["body", "jobs", 3, "command"]`."""
    parts = location[1:] if location[:1] in (["body"], ["query"], ["path"], ["header"]) else location
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return path.removeprefix(".") or "request"
