"""The operations of the API: one line declares method, path, scopes and answer; the rest follows from the handler.

A parameter of the handler whose type is a model is the JSON body, as in FastAPI. But `api/http/body.py` reads it,
within limits and without blocking other requests. `JsonBody` marks the other kinds of bodies.
"""

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar, get_args

from fastapi.params import Param, Query
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from api import openapi, problems
from api.auth.callers import ScopedRoute
from api.context import context_of
from api.http import body
from api.http.queries import StrictQuery
from workron.models import Scope

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Response]])
OF_BODIES: Final = (problems.TOO_LARGE, problems.UNSUPPORTED_MEDIA_TYPE, problems.VALIDATION)
"""Problems with which any body may be rejected."""


@dataclass(frozen=True, slots=True)
class JsonBody:
    """Marks the parameter that takes the body. One of type `bytes` takes it unparsed: `model` describes it."""

    model: type[BaseModel] | None = None
    optional: bool = False
    """Without a body the handler gets a model with its defaults."""
    most: int | None = None
    """Maximum of bytes of an unparsed body, if `max_body` is larger."""


OPTIONAL: Final = JsonBody(optional=True)


class Operations:
    """The routes with one tag."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self.routes: list[ScopedRoute] = []

    def operation(
        self,
        target: str,
        scopes: Scope | tuple[Scope, ...],
        answer: type[BaseModel] | None = None,
        *kinds: problems.Kind,
        status: int = 200,
        responses: openapi.Responses | None = None,
        extra: dict[str, Any] | None = None,
    ) -> Callable[[Handler], Handler]:
        """Make a handler the operation `target`, such as `GET /jobs`, for callers with one of the scopes.

        Without scopes it requires no key. Without `answer` the response has other content, or none. `kinds`
        are further problems: path, scopes and parameters imply the others. `extra` goes into the document.
        """
        method, _, path = target.partition(" ")

        def add(handler: Handler) -> Handler:
            signature = inspect.signature(handler)
            taken = next(_bodies(signature), None)
            implied = _implied_problems(path, scopes, signature, has_body=taken is not None)
            self.routes.append(
                ScopedRoute(
                    path,
                    taken.reading(handler, signature) if taken else handler,
                    scopes=scopes if isinstance(scopes, tuple) else (scopes,),
                    takes=taken.model if taken else None,
                    lists=next((query.lists() for query in _queries(signature)), None),
                    methods=[method],
                    operation_id=handler.__name__,
                    tags=[self._tag],
                    status_code=status,
                    response_model=answer,
                    response_class=Response if answer is None else JSONResponse,
                    responses=openapi.answers(responses or {}, *kinds, *implied),
                    openapi_extra=(taken.described() if taken else {}) | (extra or {}),
                )
            )
            return handler

        return add


@dataclass(frozen=True, slots=True)
class _Taken:
    """The parameter `name` of a handler, which takes the body as `kind`."""

    name: str
    kind: type[Any]
    body: JsonBody

    @property
    def model(self) -> type[BaseModel]:
        return self.body.model or self.kind

    def described(self) -> dict[str, Any]:
        return openapi.body(self.model, required=not self.body.optional)

    def reading(self, handler: Handler, signature: inspect.Signature) -> Callable[..., Awaitable[Response]]:
        """Return a handler without the parameter: it reads the body, and calls the other one."""

        @functools.wraps(handler)
        async def read_first(request: Request, **others: object) -> Response:
            return await handler(request, **{self.name: await self._read(request)}, **others)

        rest = [each for each in signature.parameters.values() if each.name != self.name]
        read_first.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]  # for FastAPI
        return read_first

    async def _read(self, request: Request) -> BaseModel | bytes:
        limit = context_of(request).settings.max_body
        if self.kind is bytes:
            return await body.json_bytes(request, limit if self.body.most is None else min(limit, self.body.most))
        if self.body.optional:
            return await body.optional(self.model, request, limit)
        return await body.required(self.model, request, limit)


def _bodies(signature: inspect.Signature) -> Iterator[_Taken]:
    for name, parameter in signature.parameters.items():
        kind, *marks = get_args(parameter.annotation) or (parameter.annotation,)
        mark = next((each for each in marks if isinstance(each, JsonBody)), None)
        if mark or (not marks and issubclass(kind, BaseModel)):
            yield _Taken(name, kind, mark or JsonBody())


def _queries(signature: inspect.Signature) -> Iterator[type[StrictQuery]]:
    for parameter in signature.parameters.values():
        kind, *marks = get_args(parameter.annotation) or (parameter.annotation,)
        if any(isinstance(mark, Query) for mark in marks):
            yield kind


def _implied_problems(
    path: str, scopes: Scope | tuple[Scope, ...], signature: inspect.Signature, *, has_body: bool
) -> Iterator[problems.Kind]:
    if scopes:
        yield problems.STORE_UNAVAILABLE
    if "_id}" in path:
        yield problems.NOT_FOUND
    if has_body:
        yield from OF_BODIES
    if any(isinstance(mark, Param) for each in signature.parameters.values() for mark in get_args(each.annotation)):
        yield problems.VALIDATION
