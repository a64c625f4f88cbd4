"""Commands about API keys and the audit log."""

from collections.abc import Mapping
from typing import Any, Final

import click

from workron.cli import moments
from workron.cli.command import command
from workron.cli.connect import client_options
from workron.cli.each import Each
from workron.cli.exits import notice
from workron.cli.options import ids_argument
from workron.cli.render import Column, Format, output_option, print_document, print_table
from workron.cli.values import COUNT, DURATION, given
from workron.client import Client
from workron.client.documents import AuditDoc, KeyDoc, MadeKeyDoc
from workron.models import Scope

SCOPES: Final = tuple(scope.value for scope in Scope)

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


@command(
    "workron keys create ci --scope submit --scope read --queue builds --ttl 90d",
    "workron keys create host-7 --scope work -o json | jq -r .key",
)
@click.argument("name", metavar="NAME", help="name of the key")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(SCOPES),
    metavar="SCOPE",
    multiple=True,
    required=True,
    help=f"{', '.join(SCOPES)}. May be repeated",
)
@click.option(
    "--queue", "queues", metavar="NAME", multiple=True, help="restrict the key to this queue. May be repeated"
)
@click.option("--ttl", type=DURATION, help="lifetime of the key: 12h, 90d")
@output_option
@client_options
def create(
    name: str, scopes: tuple[str, ...], queues: tuple[str, ...], ttl: float | None, output: Format, client: Client
) -> None:
    """Create an API key and print it. It is shown only once and can't be read later."""
    body = {"name": name, "scopes": list(dict.fromkeys(scopes)), "queues": list(queues) or None, "ttl": ttl}
    made = client.create_key(given(body))
    print_document(made, output, _print_key)


def _print_key(made: MadeKeyDoc) -> None:
    print(made["key"], flush=True)
    notice(f"this key is shown only once; revoke it with `workron keys revoke {made['id']}`")


@command("workron keys", "workron keys -o jsonl | jq -r .name", "workron keys list -o json")
@output_option
@client_options
def ls(output: Format, client: Client) -> None:
    """List API keys with their scopes and expiry, except the API's own key in the key file."""
    if not print_table(client.keys(), output, KEYS):
        notice("no keys yet, except the API's own")


@command("workron keys revoke 01FZpY2zqTkMcXH0Vb8n3R")
@ids_argument("ids of keys", "keys")
@client_options
def revoke(keys: tuple[str, ...], client: Client) -> int:
    """Revoke API keys: they are rejected within 5 s. Jobs submitted with them continue."""
    each = Each(keys, client.revoke_key)
    for _ in each:
        pass
    return each.code


@command("workron audit", "workron audit --limit 1000 -o jsonl | jq 'select(.status >= 400)'")
@click.option("--limit", type=COUNT, default=50, show_default=True, help="maximum number")
@output_option
@client_options
def audit(limit: int, output: Format, client: Client) -> None:
    """Show the audit log, newest first: changes through the API and rejected requests."""
    if not print_table(client.audit(limit=limit), output, AUDIT):
        notice("no entries yet")
