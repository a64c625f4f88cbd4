"""The API's error responses, as `application/problem+json` (RFC 9457), and their mapping from exceptions."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

import orjson
from starlette.responses import Response

from api.faults import Fault, faults_of
from workron import errors

MEDIA_TYPE: Final = "application/problem+json"
CHALLENGE: Final = MappingProxyType({"www-authenticate": 'Bearer realm="workron"'})
"""Headers of a 401 response."""
_MOST_ITEMS: Final = 100
_LONGEST_DETAIL: Final = 4000


@dataclass(frozen=True, slots=True)
class Kind:
    """A problem type; `/problems/<slug>` is its stable `type`."""

    slug: str
    status: int
    title: str

    @property
    def type(self) -> str:
        return f"/problems/{self.slug}"


BAD_REQUEST: Final = Kind("bad-request", 400, "Malformed HTTP request")
UNAUTHORIZED: Final = Kind("unauthorized", 401, "Missing or invalid API key")
FORBIDDEN_HOST: Final = Kind("forbidden-host", 403, "Host not allowed")
FORBIDDEN_ORIGIN: Final = Kind("forbidden-origin", 403, "Cross-origin request not allowed")
FORBIDDEN: Final = Kind("forbidden", 403, "Permission denied")
NOT_FOUND: Final = Kind("not-found", 404, "Not found")
METHOD_NOT_ALLOWED: Final = Kind("method-not-allowed", 405, "Method not allowed")
CONFLICT: Final = Kind("conflict", 409, "Conflict with the current state")
IDEMPOTENCY_CONFLICT: Final = Kind("idempotency-conflict", 409, "Idempotency-Key used with a different body")
UNIQUE_CONFLICT: Final = Kind("unique-conflict", 409, "Unique key is taken")
NOT_RUNNING: Final = Kind("not-running", 409, "Job is not running")
LEASE_LOST: Final = Kind("lease-lost", 409, "Lease lost")
FORGOTTEN: Final = Kind("forgotten", 410, "Accepted earlier and deleted since")
TOO_LARGE: Final = Kind("too-large", 413, "Request too large")
UNSUPPORTED_MEDIA_TYPE: Final = Kind("unsupported-media-type", 415, "Unsupported media type")
VALIDATION: Final = Kind("validation", 422, "Invalid request")
UNKNOWN_DEPENDENCY: Final = Kind("unknown-dependency", 422, "Unknown dependency")
DEPENDENCY_CYCLE: Final = Kind("dependency-cycle", 422, "Dependency cycle")
INTERNAL: Final = Kind("internal", 500, "Internal server error")
STORE_UNAVAILABLE: Final = Kind("store-unavailable", 503, "Store unavailable")
STORE_FULL: Final = Kind("store-full", 503, "Store is full")
STOPPING: Final = Kind("stopping", 503, "Server is stopping")
TOO_MANY_READS: Final = Kind("too-many-reads", 503, "Too many large reads")
QUEUE_FULL: Final = Kind("queue-full", 503, "Queue is full")

KINDS: Final = (
    BAD_REQUEST,
    UNAUTHORIZED,
    FORBIDDEN_HOST,
    FORBIDDEN_ORIGIN,
    FORBIDDEN,
    NOT_FOUND,
    METHOD_NOT_ALLOWED,
    CONFLICT,
    IDEMPOTENCY_CONFLICT,
    UNIQUE_CONFLICT,
    NOT_RUNNING,
    LEASE_LOST,
    FORGOTTEN,
    TOO_LARGE,
    UNSUPPORTED_MEDIA_TYPE,
    VALIDATION,
    UNKNOWN_DEPENDENCY,
    DEPENDENCY_CYCLE,
    INTERNAL,
    STORE_UNAVAILABLE,
    STORE_FULL,
    STOPPING,
    TOO_MANY_READS,
    QUEUE_FULL,
)

_KIND_OF: Final[Mapping[type[errors.WorkronError], Kind]] = {
    errors.InvalidRequest: VALIDATION,
    errors.UnknownDependency: UNKNOWN_DEPENDENCY,
    errors.DependencyCycle: DEPENDENCY_CYCLE,
    errors.TooLarge: TOO_LARGE,
    errors.Unauthorized: UNAUTHORIZED,
    errors.Forbidden: FORBIDDEN,
    errors.NotFound: NOT_FOUND,
    errors.Forgotten: FORGOTTEN,
    errors.Conflict: CONFLICT,
    errors.IdempotencyConflict: IDEMPOTENCY_CONFLICT,
    errors.UniqueConflict: UNIQUE_CONFLICT,
    errors.NotRunning: NOT_RUNNING,
    errors.LeaseLost: LEASE_LOST,
    errors.StoreUnavailable: STORE_UNAVAILABLE,
    errors.StoreFull: STORE_FULL,
    errors.TooManyReads: TOO_MANY_READS,
    errors.QueueFull: QUEUE_FULL,
}


class InvalidFields(errors.InvalidRequest):
    """The request is not JSON, or invalid for this operation."""

    def __init__(self, details: Sequence[Mapping[str, Any]]) -> None:
        self.faults = faults_of(details)[:_MOST_ITEMS]
        super().__init__(_sentence(self.faults[0]))


def _sentence(fault: Fault) -> str:
    place = ".".join(str(part) for part in fault["loc"])
    return f"{place}: {fault['msg']}" if place else fault["msg"]


def problem(kind: Kind, detail: str, *, headers: Mapping[str, str] | None = None, **extras: object) -> Response:
    """Return a problem response; `extras` become additional members of the document."""
    if len(detail) > _LONGEST_DETAIL:
        detail = detail[: _LONGEST_DETAIL - 1] + "…"
    document = {"type": kind.type, "title": kind.title, "status": kind.status, "detail": detail}
    body = orjson.dumps(document | extras)
    return Response(body, kind.status, {"x-content-type-options": "nosniff", **(headers or {})}, MEDIA_TYPE)


def from_error(error: errors.WorkronError) -> Response:
    """Return the response to an error raised on purpose; errors that a client can't cause are internal ones."""
    kind = next((_KIND_OF[cls] for cls in type(error).__mro__ if cls in _KIND_OF), None)
    if kind is None:
        return internal()
    headers = dict(CHALLENGE) if isinstance(error, errors.Unauthorized) else {}
    if isinstance(error, errors.StoreUnavailable | errors.QueueFull):
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s)))
    return problem(kind, str(error), headers=headers, **_extras(error))


def internal() -> Response:
    """Return the response to an unexpected exception: the details are in the log only."""
    return problem(INTERNAL, "unexpected error; see the log of the server")


def stopping() -> Response:
    """Return the response to a request that the end of the server cuts off; its effect is unknown."""
    return problem(STOPPING, "the server stops before it has an answer; try again", headers={"retry-after": "1"})


def closing(answer: Response) -> bytes:
    """Return a response as the bytes of HTTP/1.1, after which the connection is closed."""
    status = HTTPStatus(answer.status_code)
    fields = b"".join(b"%b: %b\r\n" % field for field in (*answer.raw_headers, (b"connection", b"close")))
    return b"HTTP/1.1 %d %b\r\n%b\r\n%b" % (status, status.phrase.encode(), fields, bytes(answer.body))


def _extras(error: errors.WorkronError) -> dict[str, object]:
    match error:
        case InvalidFields():
            return {"errors": error.faults}
        case errors.UnknownDependency():
            return {"job_ids": list(error.job_ids[:_MOST_ITEMS])}
        case errors.DependencyCycle():
            return {"members": list(error.members)}
        case errors.UniqueConflict():
            return {"job_id": error.job_id, "key": error.key}
        case errors.Forbidden():
            return {"scopes": list(error.scopes), "queue": error.queue}
        case errors.NotRunning():
            return {"code": "not_running"}
        case errors.LeaseLost():
            return {"code": "lease_lost"}
        case errors.TooLarge():
            return {}
        case errors.QueueFull():
            return {"queue": error.queue, "limit": error.limit, "waiting": error.waiting, "size": error.size}
        case errors.InvalidRequest():
            return {"errors": [{"loc": [error.field] if error.field else [], "msg": str(error)}]}
    return {}
