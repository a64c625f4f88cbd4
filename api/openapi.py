"""The OpenAPI document: exactly what the server accepts and returns, including errors."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Annotated, Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import models_json_schema

from api import problems
from api.auth.callers import ScopedRoute, declared
from workron import __version__

Responses = dict[int | str, dict[str, Any]]

_REF: Final = "#/components/schemas/{model}"
_EVERYWHERE: Final = (
    problems.BAD_REQUEST,
    problems.FORBIDDEN_HOST,
    problems.FORBIDDEN_ORIGIN,
    problems.FORBIDDEN,
    problems.INTERNAL,
    problems.STOPPING,
)
_DESCRIPTION: Final = """\
Submit shell commands, run them on any number of workers, and follow their results.

Every error is a problem document (RFC 9457) whose `type` is stable. Times are RFC 3339 in UTC, durations
are in seconds.
"""


class Fault(BaseModel):
    """One error in a request: its location and message."""

    loc: list[str | int]
    msg: str


class Problem(BaseModel):
    """Why a request was rejected (RFC 9457)."""

    model_config = ConfigDict(extra="allow", defer_build=True)

    type: Annotated[str, Field(json_schema_extra={"enum": [kind.type for kind in problems.KINDS]})]
    title: str
    status: int
    detail: str
    errors: list[Fault] = []
    job_ids: list[str] = []
    members: list[str] = []
    job_id: str | None = None
    key: str | None = None
    queue: str | None = None
    scopes: list[str] = []
    limit: int = 0
    waiting: int = 0
    size: int = 0


def answers(success: Responses, *kinds: problems.Kind) -> Responses:
    """Describe the responses of an operation: its own, the given problems, and those common to all operations."""
    by_status = groupby(sorted({*kinds, *_EVERYWHERE}, key=attrgetter("status", "slug")), attrgetter("status"))
    return success | {status: _problem_response(list(group)) for status, group in by_status}


def body(model: type[BaseModel], *, required: bool = True) -> dict[str, Any]:
    """Describe a JSON body that the route itself reads and parses."""
    schema = {"$ref": _REF.format(model=model.__name__)}
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


def _problem_response(kinds: Sequence[problems.Kind]) -> dict[str, Any]:
    examples = {
        kind.slug: {"value": {"type": kind.type, "title": kind.title, "status": kind.status, "detail": "…"}}
        for kind in kinds
    }
    content = {"schema": {"$ref": _REF.format(model=Problem.__name__)}, "examples": examples}
    response: dict[str, Any] = {
        "description": "; or: ".join(kind.title for kind in kinds),
        "content": {problems.MEDIA_TYPE: content},
    }
    if problems.STOPPING in kinds:  # all problems with its status have the header
        response["headers"] = {"Retry-After": {"required": True, "schema": {"type": "integer", "minimum": 1}}}
    return response


class DocumentedApi(FastAPI):
    """FastAPI with a custom document: bodies parsed by the routes, problems as errors, the API key where required."""

    def __init__(self, *, key_required: bool, **options: Any) -> None:
        super().__init__(title="Workron", version=__version__, description=_DESCRIPTION, **options)
        self._key_required = key_required

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = self._document()
        document: dict[str, Any] = self.openapi_schema
        return document

    def _document(self) -> dict[str, Any]:
        document = get_openapi(title=self.title, version=self.version, description=self.description, routes=self.routes)
        components = document["components"]
        components["schemas"] = _component_schemas(components.get("schemas", {}), self._bodies())
        for operations in document["paths"].values():
            for operation in operations.values():
                _drop_default_errors(operation)
                if self._key_required and (scopes := declared(operation)):
                    operation["security"] = [{"key": [scope]} for scope in scopes]
                    operation["responses"]["401"] = _problem_response([problems.UNAUTHORIZED])
        if self._key_required:
            components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        return document

    def _bodies(self) -> Iterable[type[BaseModel]]:
        """Return the models of all bodies, each once."""
        routes = (route for route in self.routes if isinstance(route, ScopedRoute))
        return dict.fromkeys(route.takes for route in routes if route.takes is not None)


def _component_schemas(answered: Mapping[str, Any], bodies: Iterable[type[BaseModel]]) -> dict[str, Any]:
    """Add the schemas of bodies and problems to the response schemas that FastAPI collected."""
    _, added = models_json_schema(
        [(model, "validation") for model in bodies] + [(Problem, "serialization")], ref_template=_REF
    )
    schemas = {name: schema for name, schema in answered.items() if "ValidationError" not in name}
    schemas.update(added["$defs"])
    return schemas


def _drop_default_errors(operation: dict[str, Any]) -> None:
    """Remove the 422 that FastAPI adds: its format is not ours, and the possible ones are declared."""
    responses = operation["responses"]
    if "HTTPValidationError" in str(responses.get("422")):
        del responses["422"]
