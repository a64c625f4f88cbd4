"""The caller of a request: the rights of its API key, and the scopes of routes.

A route declares its scopes once: `ScopedRoute` rejects callers without any of them, and the OpenAPI document
shows them.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, quote

from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from api import problems
from workron import models
from workron.errors import Forbidden, Unauthorized
from workron.models import KeyRecord
from workron.store.workflow_tokens import Grant

READ, SUBMIT, WORK, ADMIN = models.Scope.READ, models.Scope.SUBMIT, models.Scope.WORK, models.Scope.ADMIN
ASKED: Final = "workron.asked"
"""Key of the request's `Asked` in the ASGI scope."""
FRESH_S: Final = 0.5
"""How long a caller counts as verified."""
_EVERY: Final = frozenset(models.Scope)
_BY_PEOPLE: Final = frozenset({SUBMIT, ADMIN})
_CHANGES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_DECLARED: Final = "x-scope"


@dataclass(frozen=True, slots=True)
class Caller:
    """The holder of an API key. `queues` None: all; `space`: the namespace of its Idempotency-Keys."""

    id: str
    name: str
    scopes: frozenset[models.Scope]
    queues: frozenset[str] | None = None
    key: str | None = None
    """Id of the stored key, recorded with submissions."""
    space: str = "default"

    @classmethod
    def with_key(cls, record: KeyRecord) -> "Caller":
        scopes = _EVERY if ADMIN in record.scopes else record.scopes
        return cls(record.id, record.name, scopes, record.queues, record.id, space=record.id)

    @classmethod
    def with_token(cls, grant: Grant, record: KeyRecord | None, holder: KeyRecord | None) -> "Caller":
        """The command of a workflow's job: it has the rights of the key with which the job was submitted.

        Limited to the queues of `holder`, the key it was claimed with, if any: its worker is trusted with no others.
        """
        scopes, queues = (_EVERY, None) if record is None else (cls.with_key(record).scopes, record.queues)
        if holder is not None and holder.queues is not None:
            queues = holder.queues if queues is None else queues & holder.queues
        key = None if record is None else record.id
        name = "" if record is None else record.name
        return cls(f"job {grant.job}", name, scopes, queues, key, space=grant.workflow)

    def sees(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues


MASTER: Final = Caller("master", "", _EVERY)
UNAUTHENTICATED: Final = Caller("none", "", frozenset())
"""The caller of a route that needs no key."""
UNRESTRICTED: Final = Caller("none", "", _EVERY)
"""The caller of an API that demands no key."""


@dataclass(slots=True)
class Asked:
    """A request in progress: its caller, and its entry in the audit log."""

    caller: Caller
    again: Callable[[], Awaitable[Caller | None]] | None = None
    """Authenticates the caller again; None if the key can't expire during the request."""
    looked_s: float = 0.0
    """Time of the latest verification, on this process's clock."""
    action: str | None = None
    """Operation, if it belongs in the audit log."""
    targets: list[str] = field(default_factory=list)

    async def confirm(self) -> None:
        """Raise Unauthorized if the key has been revoked or has expired since the request began."""
        if self.again is not None and time.monotonic() - self.looked_s > FRESH_S:
            if await self.again() is None:
                raise Unauthorized
            self.looked_s = time.monotonic()


def caller_of(request: Request) -> Caller:
    asked: Asked = request.scope[ASKED]
    return asked.caller


async def confirm(request: Request) -> None:
    """Raise Unauthorized if the request's key has been revoked or has expired. For use after a wait."""
    asked: Asked = request.scope[ASKED]
    await asked.confirm()


def note_targets(request: Request, *targets: str) -> None:
    """Add created or affected objects to the audit entry; it has the objects of the path already."""
    asked: Asked = request.scope[ASKED]
    asked.targets += targets


def declared(operation: Mapping[str, Any]) -> list[str]:
    """Return the scopes that an operation of the OpenAPI document declares."""
    scopes: list[str] = operation[_DECLARED]
    return scopes


class ScopedRoute(APIRoute):
    """A route that rejects callers without any of its scopes before it reads the body.

    A route without scopes requires no key.
    """

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        scopes: Sequence[models.Scope],
        takes: type[BaseModel] | None = None,
        lists: Collection[str] | None = None,
        openapi_extra: Mapping[str, Any],
        **options: Any,
    ) -> None:
        super().__init__(path, endpoint, openapi_extra={_DECLARED: [*scopes], **openapi_extra}, **options)
        self.takes: Final = takes
        """The model of the body, which the route itself parses."""
        self._lists = lists
        """The query parameters that may be repeated; None: the route has no parameters."""
        self._scopes = frozenset(scopes)
        changes = not (self.methods or set()).isdisjoint(_CHANGES)
        self._by_people = changes and not self._scopes.isdisjoint(_BY_PEOPLE)
        self._by_workers = WORK in self._scopes
        self._only_reads = not changes and bool(self._scopes - {WORK})

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked: Asked = scope[ASKED]
        if scope["method"] in (self.methods or ()):
            if self._by_people and not (self._by_workers and _is_worker(asked.caller)):
                asked.action = self.operation_id or self.name
                asked.targets += (quote(value, safe="") for value in scope["path_params"].values())
            if self._scopes and asked.caller.scopes.isdisjoint(self._scopes):
                await problems.from_error(_lacks(self._scopes))(scope, receive, send)
                return
            if self._lists is not None and (name := _repeated(scope["query_string"], self._lists)):
                error = problems.InvalidFields([{"loc": ("query", name), "msg": "is given more than once"}])
                await problems.from_error(error)(scope, receive, send)
                return
        answering = super().handle(scope, receive, send)
        await (_while_there(answering, receive) if self._only_reads else answering)


async def _while_there(answering: Awaitable[None], receive: Receive) -> None:
    """Handle the request; cancel it when the client disconnects."""
    leaving = asyncio.ensure_future(left(receive))

    def stop(watching: "asyncio.Task[None]") -> None:
        # not if it is Unauthorized: its handlers raise that where it matters
        if not watching.cancelled() and watching.exception() is None:
            limit.reschedule(0)

    try:
        async with asyncio.timeout(None) as limit:
            leaving.add_done_callback(stop)
            try:
                await answering
            finally:
                leaving.remove_done_callback(stop)
    except TimeoutError:
        if not limit.expired():
            raise
    finally:
        leaving.cancel()


async def left(receive: Receive) -> None:
    """Return when the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _is_worker(caller: Caller) -> bool:
    return WORK in caller.scopes and ADMIN not in caller.scopes


def _repeated(query: bytes, lists: Collection[str]) -> str | None:
    """Return a parameter that is given twice, if there is one that is no list: only the last value would count."""
    if b"&" not in query:
        return None
    names = (name for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True) if name not in lists)
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _lacks(scopes: Iterable[models.Scope]) -> Forbidden:
    names = sorted(scopes)
    return Forbidden(f"this requires an API key with the scope {' or '.join(names)}", scopes=names)
