"""The plain fields of a job as documents and as models of answers, made from `workron/models/job_fields.py`."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from pydantic import BaseModel, Field, create_model

from api.schemas.base import Time
from workron.models.field_code import function
from workron.models.job_fields import JobField, Kind
from workron.times import rfc3339

_TYPES: Final[dict[Kind, Any]] = {
    "text": str,
    "whole": int,
    "duration": float,
    "time": Time,
    "flag": bool,
    "texts": list[str],
    "variables": dict[str, str],
    "object": dict[str, Any],
    "json": Any,
}
_SHOWN: Final[dict[Kind, str]] = {"duration": "{} / 1000", "time": "rfc3339({})"}
"""What documents show instead of the value."""


def model_of(name: str, base: type[BaseModel], fields: Sequence[JobField]) -> Any:
    """Return a model of a document with these fields."""
    members: dict[str, Any] = {}
    for field in fields:
        kind = field.members or _TYPES[field.kind]
        kind = kind if field.default is not None or kind is Any else kind | None
        members[field.shown] = (kind, Field(description=field.description))
    return create_model(name, __base__=base, **members)


def document_of(fields: Sequence[JobField]) -> Callable[[Any], dict[str, Any]]:
    """Return a function that turns these attributes of a job or a claim into members of its document."""
    members = ", ".join(f"{field.shown!r}: {_shown(field)}" for field in fields)
    return function("job", [f"return {{{members}}}"], rfc3339=rfc3339)


def _shown(field: JobField) -> str:
    value = f"job.{field.name}"
    if field.kind in _SHOWN:
        return f"None if {value} is None else {_SHOWN[field.kind].format(value)}"
    return value
