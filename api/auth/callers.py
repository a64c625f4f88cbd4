"""Who asks: what a request's key is good for, and which of the routes' scopes it has.

A route names its scopes once, in `openapi_extra=needs(…)`: `ScopedRoute` refuses who has none of them, and the OpenAPI
document shows them. A route without that can't be made.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from api import problems
from workron import models
from workron.errors import Forbidden, Unauthorized
from workron.models import KeyRecord
from workron.store.workflow_tokens import Grant

READ, SUBMIT, WORK, ADMIN = models.Scope.READ, models.Scope.SUBMIT, models.Scope.WORK, models.Scope.ADMIN
ASKED: Final = "workron.asked"
"""Under this name the ASGI scope has what is known of a request."""
FRESH_S: Final = 0.5
"""For so long nobody asks again whether a key is good."""
_EVERY: Final = frozenset(models.Scope)
_BY_PEOPLE: Final = frozenset({SUBMIT, ADMIN})
_CHANGES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_DECLARED: Final = "x-scope"


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever knows a key. `queues` None: all; `space`: whose Idempotency-Keys it shares."""

    id: str
    name: str
    scopes: frozenset[models.Scope]
    queues: frozenset[str] | None = None
    key: str | None = None
    """Id of the stored key, which goes with what is submitted."""
    space: str = "default"

    @classmethod
    def with_key(cls, record: KeyRecord) -> "Caller":
        scopes = _EVERY if ADMIN in record.scopes else record.scopes
        return cls(record.id, record.name, scopes, record.queues, record.id, space=record.id)

    @classmethod
    def with_token(cls, grant: Grant, record: KeyRecord | None, holder: KeyRecord | None) -> "Caller":
        """The command of a workflow's job: it may do what the key could with which the job was submitted.

        Not beyond the queues of the key it was claimed with, if `holder` is one: its worker is trusted with no other.
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
    """A request on its way: who asks, and what is to be written down of it."""

    caller: Caller
    again: Callable[[], Awaitable[Caller | None]] | None = None
    """Finds out anew who asks; None where the key can't be over before the request is."""
    looked_s: float = 0.0
    """When that was found out, by the clock of this process."""
    action: str | None = None
    """Operation, if it is one that the record has."""
    targets: list[str] = field(default_factory=list)

    async def confirm(self) -> None:
        """Raise Unauthorized if the key is over by now: what is done or told from here on would be so without one."""
        if self.again is not None and time.monotonic() - self.looked_s > FRESH_S:
            if await self.again() is None:
                raise Unauthorized
            self.looked_s = time.monotonic()


def caller_of(request: Request) -> Caller:
    asked: Asked = request.scope[ASKED]
    return asked.caller


async def confirm(request: Request) -> None:
    """Raise Unauthorized if the key that the request came with is over by now. For who has waited."""
    asked: Asked = request.scope[ASKED]
    await asked.confirm()


def note_targets(request: Request, *targets: str) -> None:
    """Have the record name what was made or acted on, beside what the path names."""
    asked: Asked = request.scope[ASKED]
    asked.targets += targets


def needs(*scopes: models.Scope) -> dict[str, Any]:
    """Declare that a route needs one of these scopes; none: not even a key."""
    return {_DECLARED: [scope.value for scope in scopes]}


def declared(operation: Mapping[str, Any]) -> list[str]:
    """Return the scopes that an operation of the OpenAPI document declares."""
    scopes: list[str] = operation[_DECLARED]
    return scopes


class ScopedRoute(APIRoute):
    """A route that refuses, before its body is read, who lacks all of its scopes."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        if _DECLARED not in (self.openapi_extra or {}):
            raise TypeError(f"{path}: a route declares its scopes with openapi_extra=needs(…)")
        self._scopes = frozenset(models.Scope(scope) for scope in declared(self.openapi_extra or {}))
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
        answering = super().handle(scope, receive, send)
        await (_while_there(answering, receive) if self._only_reads else answering)


async def _while_there(answering: Awaitable[None], receive: Receive) -> None:
    """Answer, and give it up when the client has gone: what nobody waits for is work for nothing."""
    leaving = asyncio.ensure_future(left(receive))

    def stop(watching: "asyncio.Task[None]") -> None:
        if (
            not watching.cancelled() and watching.exception() is None
        ):  # not the end of the key: that is told where it matters
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


def _lacks(scopes: Iterable[models.Scope]) -> Forbidden:
    names = sorted(scopes)
    return Forbidden(f"this requires an API key with the scope {' or '.join(names)}", scopes=names)
