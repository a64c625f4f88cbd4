"""Commands about the system: health."""

from collections.abc import Iterator

from workron.cli import moments
from workron.cli.command import command
from workron.cli.connect import client_options
from workron.cli.render import Format, output_option, print_card, print_document
from workron.cli.text import printable
from workron.client import Client
from workron.client.documents import HealthDoc, ServerDoc


@command("workron health", "workron health --url http://127.0.0.1:9000 -o json")
@output_option
@client_options
def health(output: Format, client: Client) -> None:
    """Show the health of the API, its Redis and the reaper."""
    print_document(client.health(), output, _print_health)


def _print_health(report: HealthDoc) -> None:
    style = "bold green" if report["status"] == "ok" else "bold red"
    print_card(report["status"], style, _facts(report))


def _facts(report: HealthDoc) -> Iterator[tuple[str, str]]:
    for warning in report["warnings"]:
        yield "warning", printable(warning)
    yield "instance", printable(report["instance"])
    yield "api", f"workron {report['version']}, up {moments.length(report['uptime'])}"
    server = report["server"]
    yield "redis", printable(f"{server['product']} {server['version']}")
    yield "durability", _durability(server)
    yield "eviction", printable(server["maxmemory_policy"] or "unknown")
    yield "memory", _memory(server)
    age_s = report["reaper"]["last_pass_age"]
    yield "reaper", "never ran" if age_s is None else f"last pass {moments.length(age_s)} ago"
    yield "jobs", f"{report['running']} running, {report['due']} scheduled"


def _durability(server: ServerDoc) -> str:
    if server["appendonly"] is None:
        return "unknown"
    return printable(f"AOF, fsync {server['appendfsync']}") if server["appendonly"] else "no AOF"


def _memory(server: ServerDoc) -> str:
    if server["used_memory"] is None:
        return "unknown"
    used = f"{server['used_memory'] / 2**20:.1f} MiB"
    return f"{used} of {server['maxmemory'] / 2**20:.1f} MiB" if server["maxmemory"] else f"{used}, no limit"
