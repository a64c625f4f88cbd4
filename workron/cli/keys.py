"""Commands about API keys and the audit log."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from workron.cli import moments
from workron.cli.command import spread
from workron.cli.connect import ApiOptions, connect
from workron.cli.each import Each
from workron.cli.exits import notice
from workron.cli.options import seconds
from workron.cli.render import Column, Format, FormatOption, print_document, print_table
from workron.client.documents import AuditDoc, KeyDoc, MadeKeyDoc
from workron.models import Scope

_SCOPES: Final = ", ".join(Scope)

KEYS: Final = (
    Column("ID", lambda key: key["id"], style=lambda _: "cyan"),
    Column("NAME", lambda key: key["name"], flexible=True),
    Column("SCOPES", lambda key: " ".join(key["scopes"])),
    Column("QUEUES", lambda key: "all" if key["queues"] is None else " ".join(key["queues"]), rank=1, flexible=True),
    Column("EXPIRES", lambda key: _expiry(key), right=True),
    Column("AGE", lambda key: moments.age(key["created_at"]), rank=2, right=True),
)


def _expiry(key: KeyDoc) -> str:
    if key["expires_at"] is None:
        return "never"
    return "expired" if key["state"] == "expired" else moments.age(key["expires_at"]).removeprefix("+")


def _who(entry: AuditDoc) -> str:
    return entry["key_name"] or entry["key"]


def _style(entry: Mapping[str, Any]) -> str:
    return "green" if (entry["status"] or 0) < 400 else "red"


AUDIT: Final = (
    Column("AGE", lambda entry: moments.age(entry["at"]), right=True),
    Column("WHO", _who, flexible=True, style=lambda _: "cyan"),
    Column("ACTION", lambda entry: entry["action"]),
    Column("STATUS", lambda entry: str(entry["status"] or "left"), right=True, style=_style),
    Column("TARGET", lambda entry: entry["target"] or "", rank=1, flexible=True),
    Column("FROM", lambda entry: entry["address"] or "", rank=2, style=lambda _: "dim"),
)


@spread
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="name of the key")],
    *,
    scope: Annotated[list[str], typer.Option(metavar="SCOPE", help=f"{_SCOPES}. May be repeated")],
    queue: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="restrict the key to this queue. May be repeated"),
    ] = None,
    ttl: Annotated[str | None, typer.Option(metavar="TIME", help="lifetime of the key: 12h, 90d")] = None,
    output: FormatOption = Format.TABLE,
    api: ApiOptions,
) -> None:
    """Create an API key and print it. It is shown only once and can't be read later."""
    for one in scope:
        if one not in tuple(Scope):
            raise typer.BadParameter(f"{one!r} is not one of {_SCOPES}", param_hint="--scope")
    body = {"name": name, "scopes": list(dict.fromkeys(scope)), "queues": queue or None, "ttl": seconds("--ttl", ttl)}
    with connect(api) as client:
        made = client.create_key({field: value for field, value in body.items() if value is not None})
    print_document(made, output, _print_key)


def _print_key(made: MadeKeyDoc) -> None:
    print(made["key"], flush=True)
    notice(f"this key is shown only once; revoke it with `workron keys revoke {made['id']}`")


@spread
def ls(*, output: FormatOption = Format.TABLE, api: ApiOptions) -> None:
    """List API keys with their scopes and expiry, except the API's own key in the key file."""
    with connect(api) as client:
        if not print_table(client.keys(), output, KEYS):
            notice("no keys yet, except the API's own")


@spread
def revoke(
    keys: Annotated[
        list[str], typer.Argument(metavar="ID", show_default=False, help="ids of keys; - reads them from stdin")
    ],
    *,
    api: ApiOptions,
) -> int:
    """Revoke API keys: they are rejected within 5 s. Jobs submitted with them continue."""
    with connect(api) as client:
        each = Each(keys, client.revoke_key)
        for _ in each:
            pass
    return each.code


@spread
def audit(
    *,
    limit: Annotated[int, typer.Option(metavar="N", help="maximum number", show_default=True)] = 50,
    output: FormatOption = Format.TABLE,
    api: ApiOptions,
) -> None:
    """Show the audit log, newest first: changes through the API and rejected requests."""
    if limit < 1:
        raise typer.BadParameter("must be at least 1", param_hint="--limit")
    with connect(api) as client:
        if not print_table(client.audit(limit=limit), output, AUDIT):
            notice("no entries yet")
