"""The plain fields of a job as parts of pydantic models, made from the table in `workron/models/job_fields.py`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, Field, StringConstraints, create_model

from workron.durations import to_ms
from workron.models.field_code import function
from workron.models.job_fields import DESCRIBED, FILTERABLE, MIB, Described, JobField
from workron.specs.fields import Body, SomeSeconds, or_with_a_point, within_a_mib
from workron.specs.job_fields import Argv, Env, Metadata, Tags

_OWN: Final[dict[str, Any]] = {"argv": Argv, "env": Env, "metadata": Metadata, "tags": Tags}
"""Types of fields that are JSON."""
_EMPTY: Final[dict[str, Any]] = {"texts": list, "variables": dict, "object": dict}
"""What such a field has by default, unless that is None."""


def type_of(field: JobField) -> Any:
    """Return the type of a field, with its checks."""
    match field.kind:
        case "text":
            checks = [AfterValidator(within_a_mib)] if field.most == MIB else []
            limits = StringConstraints(min_length=field.least, max_length=field.most, pattern=field.pattern)
            return Annotated[(str, limits, *checks)]
        case "whole":
            return Annotated[int, Field(ge=field.least, le=field.most), or_with_a_point]
        case "duration":
            return SomeSeconds
        case "flag":
            return bool
        case "choice":
            return field.members
    return _OWN[field.name]


def _member(field: JobField) -> tuple[Any, Any]:
    """Return the type and the default of a field of a body."""
    if field.default is not None and field.kind in _EMPTY:
        return type_of(field), Field(default_factory=_EMPTY[field.kind], description=field.description)
    kind = type_of(field) | None if field.default is None else type_of(field)
    return kind, Field(default=field.default, description=field.description)


def filters(base: type[BaseModel]) -> Any:
    """Return a model of query parameters, one for each filterable field."""
    members: dict[str, Any] = {field.shown: (type_of(field) | None, None) for field in FILTERABLE}
    return create_model("PlainFilters", __base__=base, **members)


if TYPE_CHECKING:

    class PlainJob(Body, Described):
        """The plain fields of a submission, with the types of the table."""
else:
    PlainJob = create_model("PlainJob", __base__=Body, **{field.shown: _member(field) for field in DESCRIBED})


def _attribute(field: JobField) -> str:
    value = f"body.{field.shown}"
    return f"to_ms({value})" if field.kind == "duration" else value


copy: Final[Callable[[PlainJob, Described], None]] = function(
    "body, job", (f"job.{field.name} = {_attribute(field)}" for field in DESCRIBED), to_ms=to_ms
)
"""Copy the plain fields of a submission."""
wanted: Final[Callable[[Any], dict[str, Any]]] = function(
    "body", [f"return {{{', '.join(f'{field.name!r}: {_attribute(field)}' for field in FILTERABLE)}}}"], to_ms=to_ms
)
"""Return the values of filterable fields in a query, by the names of attributes."""
