"""The HTTP API as an ASGI application: routes, middleware and error responses."""

from typing import TYPE_CHECKING, Final

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match

from api import problems
from api.auth import queue_rights
from api.auth.callers import caller_of
from api.auth.keyring import Keyring
from api.context import Context, context_of
from api.http import pages
from api.http.middleware import Middleware
from api.openapi import DocumentedApi
from api.routes import (
    actions,
    api_keys,
    claims,
    exchange,
    jobs,
    queues,
    reports,
    schedules,
    submissions,
    system,
    workers,
    workflows,
)
from workron.errors import StoreUnavailable, UniqueConflict, WorkronError
from workron.settings import Settings

if TYPE_CHECKING:
    from workron.store import Store

_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


def create_app(store: "Store", settings: Settings, api_key: str | None) -> DocumentedApi:
    """Build the application; with `api_key` None no key is required.

    Set `app.state.context.stopping` when the server begins to stop: it ends parked and streaming requests.
    """
    app = DocumentedApi(
        key_required=api_key is not None,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    keyring = None if api_key is None else Keyring(api_key, store)
    context = app.state.context = Context(store, settings, keyring)
    # /jobs/next and /jobs/actions go before /jobs/{job_id}
    steps = (submissions, claims, actions, jobs, workflows, reports, exchange)
    modules = (*steps, queues, schedules, workers, api_keys, system)
    for router in (module.router for module in modules):
        app.routes.extend(router.routes)  # an included router would match each request twice
    app.add_route("/", pages.index, include_in_schema=False)
    app.add_route("/docs", pages.docs, include_in_schema=False)
    app.add_route("/openapi.json", pages.openapi, include_in_schema=False)
    for kind_of_error in (WorkronError, RequestValidationError, HTTPException, ClientDisconnect):
        app.add_exception_handler(kind_of_error, _answer_error)
    app.add_middleware(Middleware, settings=settings, keyring=keyring, audit=context.audit)
    return app


async def _answer_error(request: Request, error: Exception) -> Response:
    """Return the response to an expected exception; the middleware handles all others."""
    if isinstance(error, StoreUnavailable):
        context_of(request).outages.failed(error)
    if isinstance(error, UniqueConflict):
        error = await queue_rights.hidden(context_of(request).store, caller_of(request), error)
    match error:
        case WorkronError():
            return problems.from_error(error)
        case RequestValidationError():
            return problems.from_error(problems.InvalidFields(error.errors()))
        case HTTPException(status_code=404):
            return problems.problem(problems.NOT_FOUND, f"no resource at {request.url.path}")
        case HTTPException(status_code=405):
            allowed = ", ".join(_allowed_methods(request))
            detail = f"{request.method} is not allowed at {request.url.path}; allowed: {allowed}"
            return problems.problem(problems.METHOD_NOT_ALLOWED, detail, headers={"allow": allowed})
        case HTTPException(status_code=415):
            return problems.problem(problems.UNSUPPORTED_MEDIA_TYPE, error.detail)
        case ClientDisconnect():
            return Response(status_code=400)  # the client has gone
    raise error


def _allowed_methods(request: Request) -> list[str]:
    """Return the allowed methods of a path over all its routes; Starlette's header has those of the first route only.

    If several patterns match, as `/jobs/bulk` and `/jobs/{job_id}`, the one with the fewest parameters counts.
    """
    parameters = {
        method: len(child_scope["path_params"])
        for method in _METHODS
        for route in reversed(request.app.routes)  # the first matching route answers
        for match, child_scope in [route.matches({**request.scope, "method": _answered_as(method)})]
        if match is Match.FULL
    }
    return [method for method, count in parameters.items() if count == min(parameters.values())]


def _answered_as(method: str) -> str:
    return "GET" if method == "HEAD" else method
