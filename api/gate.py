"""The first thing that every request meets: Host, Origin and key, as plain ASGI.

Nothing behind it runs for a request that fails a check, whatever its method or path. It also answers HEAD where there
is GET, and turns an exception that nobody caught into a problem document.
"""

from typing import TYPE_CHECKING, Final

import structlog
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import problems
from api.auth import KeyCheck
from api.hosts import HostList, same_origin
from workron.errors import StoreUnavailable
from workron.settings import Settings
from workron.tokens import Grant, is_token

if TYPE_CHECKING:
    from workron.store import Store

log = structlog.get_logger()

OPEN_PATHS: Final = frozenset({"/", "/docs", "/openapi.json", "/livez", "/readyz"})
"""What can be asked without a key: nothing here tells about jobs."""

_CHECKED: Final = frozenset({b"host", b"origin", b"sec-fetch-site", b"authorization"})


class Gate:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, settings: Settings, api_key: str | None, store: "Store") -> None:
        self._app = app
        self._store = store
        self._hosts = HostList(settings)
        self._key = KeyCheck(api_key) if api_key is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send)
        refusal = self._refusal(scope) or await self._refuse_stranger(scope)
        if refusal is not None:
            await refusal(scope, receive, answer.send)
            return
        if scope["method"] == "HEAD":  # the server below leaves out the body
            scope = {**scope, "method": "GET", "workron.head": True}
        try:
            await self._app(scope, receive, answer.send)
        except Exception:
            log.exception("request failed", method=scope["method"], path=scope["path"])
            if answer.started:
                raise  # the server breaks the connection: the client sees that the answer is not whole
            await problems.internal()(scope, receive, answer.send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = {name: value for name, value in scope["headers"] if name in _CHECKED}
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._hosts.allows(host) or _repeated(b"host", scope):
            return problems.problem(
                problems.FORBIDDEN_HOST, f"this server does not answer to the name {host!r}; see allowed_hosts"
            )
        if not same_origin(_text(headers.get(b"origin")), _text(headers.get(b"sec-fetch-site")), host):
            return problems.problem(problems.FORBIDDEN_ORIGIN, "a web page of another site sent this request")
        return None

    async def _refuse_stranger(self, scope: Scope) -> Response | None:
        """Refuse who knows neither the key nor, for what it opens, a token of a workflow's job."""
        authorization = next((value for name, value in scope["headers"] if name == b"authorization"), None)
        if self._key is None or scope["path"] in OPEN_PATHS or self._key.accepts(authorization):
            return None
        token = (authorization or b"").partition(b" ")[2].strip().decode("latin-1")
        if is_token(token):
            try:
                grant = await self._store.attempts.tokens.judge(token)
            except StoreUnavailable as error:
                return problems.from_error(error)
            if grant is not None and (scope["method"], scope["path"]) in _opened(grant):
                return None
        return problems.problem(
            problems.UNAUTHORIZED,
            "send the API key as `Authorization: Bearer KEY`",
            headers={"www-authenticate": 'Bearer realm="workron"'},
        )


def _opened(grant: Grant) -> set[tuple[str, str]]:
    """Return what may be asked with a token: its workflow, and more jobs in it."""
    path = f"/workflows/{grant.workflow}"
    return {("GET", path), ("POST", f"{path}/jobs")}


class _Answer:
    """Sees whether an answer has begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    async def send(self, message: Message) -> None:
        self.started = True
        await self._send(message)


def _repeated(header: bytes, scope: Scope) -> bool:
    return [name for name, _ in scope["headers"]].count(header) > 1


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")
