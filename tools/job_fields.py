"""Source that follows from the plain fields of a job: the client's types, the options, and what a claim reads."""

from typing import Final

from workron.models.job_fields import EXECUTION, STORED, JobField, Kind

_ORIGIN: Final = "written by `make generate` from workron/models/job_fields.py"
_TYPES: Final[dict[Kind, str]] = {
    "text": "str",
    "whole": "int",
    "duration": "float",
    "time": "str",
    "flag": "bool",
    "choice": "str",
    "texts": "list[str]",
    "variables": "dict[str, str]",
    "object": "dict[str, Any]",
    "json": "Any",
}


def client_types(_: str) -> str:
    """Return the client's type of the plain fields of a job."""
    members = "".join(f"    {field.shown}: {_type(field)}\n" for field in STORED)
    return f'''"""The plain fields of a job as the API returns them: {_ORIGIN}."""

from typing import Any, TypedDict


class PlainJobDoc(TypedDict):
    """The plain fields of a job."""

{members}'''


def _type(field: JobField) -> str:
    kind = _TYPES[field.kind]
    return kind if field.default is not None or field.kind == "json" else f"{kind} | None"


def claimed(_: str) -> str:
    """Return the names of the fields that a worker gets, for the scripts."""
    names = ", ".join(f"'{field.stored}'" for field in EXECUTION)
    return f"""-- job_fields: the plain fields of a job that its worker gets, {_ORIGIN}.

local JOB_FIELDS = {{ CLAIMED = {{ {names} }} }}
"""
