"""The common base of the documents."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import orjson
from pydantic import Field
from starlette.responses import Response

from workron.models import Status
from workron.specs.documented import Documented
from workron.times import rfc3339

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class Answer(Documented):
    """A document that a route returns."""


def json_response(document: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(orjson.dumps(document), status, headers, "application/json")


def time_or_none(at_ms: int | None) -> str | None:
    return None if at_ms is None else rfc3339(at_ms)


def counts_document(counts: Mapping[Status, int]) -> dict[str, int]:
    return {status.value: count for status, count in counts.items()}


def list_document(items: Iterable[Mapping[str, Any]], next_cursor: str | None = None) -> dict[str, Any]:
    return {"data": list(items), "next_cursor": next_cursor}
