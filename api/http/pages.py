"""The two HTML pages: a greeting at `/` and the reference at `/docs`. No scripts, no external resources."""

import base64
import hashlib
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from api import schemas
from workron import __version__

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:3rem auto;padding:0 1rem;color:#222}"
    "code,pre{font-family:ui-monospace,monospace;background:#f3f3f3;padding:.1em .3em}"
    "pre{padding:.8em;overflow:auto}h2{margin-top:2.5rem;font-size:1.1rem}"
    "td,th{text-align:left;padding:.1em 1em .1em 0}"
)
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS: Final = {
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


async def index(request: Request) -> Response:
    """Return a greeting page to browsers, links to other clients."""
    if "text/html" not in request.headers.get("accept", ""):
        links = {"docs": "/docs", "openapi": "/openapi.json", "health": "/health"}
        return schemas.json_response({"name": "workron", "version": __version__} | links)
    return HTMLResponse(_greeting(), headers=_HEADERS)


def _greeting() -> bytes:
    return _page(
        "Workron",
        "<p>This is the API of a job scheduler. It is up.</p>"
        "<pre>workron submit -- echo hello\nworkron ls</pre>"
        '<p><a href="/docs">Reference</a> · <a href="/openapi.json">OpenAPI document</a> · '
        '<a href="/readyz">Is it ready?</a></p>',
    )


async def docs(request: Request) -> Response:
    """Return the OpenAPI document as an HTML page."""
    state = request.app.state
    if not hasattr(state, "reference"):  # anybody may ask for it: it is written once
        state.reference = _page("Workron API", "".join(_reference(request.app.openapi())))
    return HTMLResponse(state.reference, headers=_HEADERS)


async def openapi(request: Request) -> Response:
    """Return the OpenAPI document; FastAPI's own route takes thirty times as long."""
    return Response(orjson.dumps(request.app.openapi()), media_type="application/json")


def _page(title: str, content: str) -> bytes:
    html = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
        f"<h1>{escape(title)} <small>{__version__}</small></h1>{content}</html>"
    )
    return html.encode()


def _reference(document: Mapping[str, Any]) -> Iterator[str]:
    yield f"<p>{escape(document['info']['description'])}</p>"
    yield '<p>Send the key as <code>Authorization: Bearer KEY</code>. <a href="/openapi.json">openapi.json</a></p>'
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield from _operation(path, method, operation)
    for name, schema in document["components"]["schemas"].items():
        yield from _schema(name, schema)


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation.get('description', ''))}</p>"
    rows = [
        (parameter["name"], parameter["in"], parameter.get("description", ""))
        for parameter in operation.get("parameters", ())
    ]
    rows += [("body", *_body_of(operation["requestBody"]))] if "requestBody" in operation else []
    rows += [(status, "answer", answer["description"]) for status, answer in operation["responses"].items()]
    yield _table(rows)


def _schema(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f'<h2 id="{escape(name)}">{escape(name)}</h2><p>{escape(schema.get("description", ""))}</p>'
    required = schema.get("required", ())
    yield _table(
        (field, "required" if field in required else "", described.get("description", ""))
        for field, described in schema.get("properties", {}).items()
    )


def _body_of(body: Mapping[str, Any]) -> tuple[str, str]:
    [(media_type, content)] = body["content"].items()
    return media_type.rpartition("/")[2], str(content["schema"].get("$ref", "bytes")).rpartition("/")[2]


def _table(rows: Any) -> str:
    lines = ("".join(f"<td>{escape(str(cell))}</td>" for cell in row) for row in rows)
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"
