"""The checks before every request: Host, Origin and API key, as plain ASGI.

A request that fails a check goes no further, whatever its method or path. It also answers HEAD for routes with
GET, turns unhandled exceptions into problem documents, and adds requests to the audit log.
"""

import asyncio
import time
from functools import partial
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import problems
from api.auth.audit import AuditWriter
from api.auth.callers import ASKED, MASTER, UNAUTHENTICATED, UNRESTRICTED, Asked
from api.auth.keyring import Keyring
from api.http.hosts import HostList, same_origin
from workron.errors import StoreUnavailable
from workron.runtime.logger import log
from workron.settings import Settings

OPEN_PATHS: Final = frozenset({"/", "/docs", "/openapi.json", "/livez", "/readyz"})
"""Paths that need no key; none of them exposes jobs."""

_CHECKED: Final = frozenset({b"host", b"origin", b"sec-fetch-site", b"authorization"})


class Middleware:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, settings: Settings, keyring: Keyring | None, audit: AuditWriter) -> None:
        """`keyring` None: no key is required."""
        self._app = app
        self._hosts = HostList(settings)
        self._keyring = keyring
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send)
        asked: Asked | Response | None = None
        try:
            asked = self._refusal(scope) or await self._identify(scope)
            await self._respond(asked, scope, receive, answer.send)
        except asyncio.CancelledError:
            if not answer.status:  # the server below would answer in plain text
                await problems.stopping()(scope, receive, answer.send)
            raise
        except Exception:
            log.exception("request failed", method=scope["method"], path=scope["path"])
            if answer.status:
                raise  # the server breaks the connection: the client sees that the answer is not whole
            await problems.internal()(scope, receive, answer.send)
        finally:
            if isinstance(asked, Asked) and asked.action is not None:
                self._audit.append(asked, answer.status, scope["client"])

    async def _respond(self, asked: Asked | Response, scope: Scope, receive: Receive, send: Send) -> None:
        if not isinstance(asked, Asked):
            await asked(scope, receive, send)
            return
        if asked.again is not None:
            receive = _while_good(receive, asked)
        head = scope["method"] == "HEAD"  # the server below leaves out the body
        scope = {**scope, ASKED: asked, **({"method": "GET", "workron.head": True} if head else {})}
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = {name: value for name, value in scope["headers"] if name in _CHECKED}
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._hosts.allows(host) or _repeated(b"host", scope):
            return problems.problem(
                problems.FORBIDDEN_HOST, f"the host {host!r} is not allowed; see the setting allowed_hosts"
            )
        if not same_origin(_text(headers.get(b"origin")), _text(headers.get(b"sec-fetch-site")), host):
            return problems.problem(problems.FORBIDDEN_ORIGIN, "the request comes from a page of another site")
        return None

    async def _identify(self, scope: Scope) -> Asked | Response:
        """Return the caller, or the 401/503 response if the credentials are rejected."""
        if self._keyring is None:
            return Asked(UNRESTRICTED)
        if scope["path"] in OPEN_PATHS:
            return Asked(UNAUTHENTICATED)
        authorization = next((value for name, value in scope["headers"] if name == b"authorization"), None)
        if self._keyring.is_master(authorization):
            return Asked(MASTER)
        again = partial(self._keyring.caller, authorization, scope["method"], scope["path"])
        try:
            caller = await again()
        except StoreUnavailable as error:
            return problems.from_error(error)
        if caller is not None:
            return Asked(caller, again, time.monotonic())
        return problems.problem(
            problems.UNAUTHORIZED, "send the API key as `Authorization: Bearer KEY`", headers=problems.CHALLENGE
        )


def _while_good(receive: Receive, asked: Asked) -> Receive:
    """Raise Unauthorized if the key expires before the body ends: clients can send it arbitrarily slowly."""

    async def received() -> Message:
        message = await receive()
        if message["type"] == "http.request":
            await asked.confirm()
        return message

    return received


class _Answer:
    """Records the status of the response; 0: not started yet."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)


def _repeated(header: bytes, scope: Scope) -> bool:
    return [name for name, _ in scope["headers"]].count(header) > 1


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")
