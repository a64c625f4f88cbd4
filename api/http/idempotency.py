"""The Idempotency-Key of a request: a repeat returns the result of the first request."""

import re
from typing import Any, Final

from starlette.requests import Request

from api.auth.callers import caller_of
from api.http.large import fingerprint
from workron.errors import InvalidRequest
from workron.models import Idempotency

_HEADER: Final = "idempotency-key"
_PATTERN: Final = r"^[\x21-\x7e]([\x20-\x7e]{0,253}[\x21-\x7e])?$"
_KEY: Final = re.compile(_PATTERN)
PARAMETER: Final[dict[str, Any]] = {
    "parameters": [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "Makes the request safe to repeat: a repeat returns what the first request stored.",
            "schema": {"type": "string", "pattern": _PATTERN},
        }
    ]
}


def key_of(request: Request) -> str | None:
    """Return the request's Idempotency-Key, if it has one."""
    keys = request.headers.getlist(_HEADER)
    if len(keys) > 1:
        raise InvalidRequest("Idempotency-Key is given more than once", field="Idempotency-Key")
    key = keys[0] if keys else None
    if key is not None and _KEY.fullmatch(key) is None:
        raise InvalidRequest("Idempotency-Key must be 1 to 255 printable ASCII characters", field="Idempotency-Key")
    return key


def of(request: Request, raw: bytes) -> Idempotency | None:
    """Return the request's key and the fingerprint of its content; whitespace and member order don't matter.

    Each API key has its own namespace of Idempotency-Keys; the tokens of a workflow's jobs share one.
    """
    key = key_of(request)
    if key is None:
        return None
    asked = f"{request.method} {request.url.path}\n".encode()
    return Idempotency(caller_of(request).space, key, fingerprint(asked, raw))
