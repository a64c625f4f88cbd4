"""Reads request bodies: JSON only, up to the limit, parsed directly into a model."""

from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from api.http.large import LARGE, LISTS, details_of, in_thread, refuse_repeats
from api.http.large import parse as parse_large
from api.problems import InvalidFields
from workron.errors import TooLarge

Model = TypeVar("Model", bound=BaseModel)
_JSON: Final = "application/json"
MOST_OF_ONE: Final = 2 * 1024 * 1024
"""Bytes of a body that is no submission and no list of attempts, whatever `max_body` is."""


async def read(request: Request, limit: int) -> bytes:
    """Return the whole body; raise `TooLarge` as soon as it is known to exceed `limit` bytes.

    Compressed bodies are rejected (415): a few bytes could expand to any number.
    """
    headers = request.headers
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise HTTPException(415, "content-encoding is not supported: send the plain body")
    if headers.get("transfer-encoding", "chunked").strip().lower() != "chunked":
        raise HTTPException(415, "only the transfer-encoding chunked is supported")
    announced = headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
    return b"".join(parts)


def require_json(request: Request) -> None:
    """Reject (415) a body not declared as JSON: a form on another site can't declare it."""
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != _JSON:
        raise HTTPException(415, f"send the body as content-type: {_JSON}")


async def optional(model: type[Model], request: Request, limit: int) -> Model:
    """Return the body as a model whose fields all have defaults; no body at all, of whatever type, is one too."""
    raw = await read(request, min(limit, MOST_OF_ONE))
    if not raw.strip():
        return model()
    require_json(request)
    return await parse_many(model, raw)


async def json_bytes(request: Request, limit: int) -> bytes:
    """Return the JSON body unparsed."""
    require_json(request)
    return await read(request, limit)


async def required(model: type[Model], request: Request, limit: int) -> Model:
    """Return the JSON body as a model."""
    is_list = not LISTS.isdisjoint(model.model_fields)
    return await parse_many(model, await json_bytes(request, limit if is_list else min(limit, MOST_OF_ONE)))


def parse(model: type[Model], body: bytes) -> Model:
    """Return the body as a model; raise `InvalidFields` with the errors found, up to a limit."""
    try:
        valid = model.model_validate_json(body)
    except ValidationError as error:
        raise InvalidFields(details_of(error)) from None
    refuse_repeats(body)
    return valid


async def parse_many(model: type[Model], body: bytes) -> Model:
    """Do the same with a possibly large body, without blocking other requests."""
    if len(body) <= LARGE:
        return parse(model, body)
    return await in_thread(parse_large, model, body)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit:,} bytes")
