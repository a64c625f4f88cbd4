"""The command that checks the data in Redis and repairs it."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource
from pydantic import SecretStr

from workron.amounts import counted
from workron.cli.command import command
from workron.cli.connect import find_instance, url_option
from workron.cli.exits import CliError, Exit, notice
from workron.cli.flags import SettingsCommand, settings_of, settings_options
from workron.cli.progress import Progress
from workron.cli.render import Format, output_option, print_card, print_document
from workron.cli.text import printable

if TYPE_CHECKING:
    from workron.doctor import Fault, Report
    from workron.doctor.progress import Say
    from workron.settings import Settings

_SHOWN: Final = 5
"""Maximum number of faults of one kind in the table."""
_CALL_S: Final = 10.0
"""Maximum duration of a call: a page of many reads may take long on a busy server."""


@command(
    "workron doctor",
    "workron doctor --rebuild",
    "workron doctor --redis redis://db.example:6379/0 -o json | jq .faults",
    cls=SettingsCommand,
)
@settings_options
@click.option(
    "--rebuild",
    is_flag=True,
    help="write all lists, indexes and counts that are wrong again from the jobs; other calls wait meanwhile",
)
@click.option("--repair", is_flag=True, hidden=True)
@output_option
@url_option("URL of the `workron up` on this machine whose Redis to examine")
def doctor(flags: Mapping[str, Any], *, rebuild: bool, repair: bool, output: Format, url: str | None) -> int:
    """Recount everything in Redis, also on a live system, and report all faults.

    Faults come from keys that were deleted or edited, or from lost writes of Redis: no script stops half-way.

    Redis is the one in the settings, otherwise that of the `workron up` at --url or WORKRON_URL, otherwise that of the
    one on this machine. Exit code 1: there are faults.
    """
    if repair:
        raise CliError("--repair is gone: take --rebuild, which holds up all other calls while it mends", Exit.USAGE)
    if output is Format.JSONL:
        raise CliError("the report is one document: take -o json", Exit.USAGE)
    settings = _with_redis(settings_of(flags), flags, url)
    try:
        with Progress() as progress:
            report = asyncio.run(_examine(settings, rebuild, progress.show))
    except KeyboardInterrupt:
        if rebuild:
            notice("the rebuild stopped midway: what it wrote is right, and the rest is as it was. Run it again")
        raise
    print_document(_document(report), output, lambda _: _print(report, rebuild))
    if report.keys == 0:
        notice("this namespace has no keys: check the namespace and the Redis URL")
    if report.uncounted:
        notice(f"counters were not compared: {report.uncounted}")
    return Exit.JOB_FAILED if report.faults else Exit.OK


def _with_redis(settings: "Settings", flags: Mapping[str, Any], url: str | None) -> "Settings":
    named = click.get_current_context().get_parameter_source("url") is ParameterSource.COMMANDLINE
    if settings.redis is not None:
        if named:
            raise CliError("--url and a Redis in the settings: name one of the two", Exit.USAGE)
        return settings
    url = url or settings.api
    instance = find_instance(url, flags)
    if instance is None:
        raise CliError(f"{url} is no instance on this machine: set its Redis with --redis URL", Exit.USAGE)
    if instance.redis is None:
        raise CliError("the instance on this machine uses an external Redis: set it with --redis URL", Exit.USAGE)
    return settings.model_copy(update={"redis": SecretStr(instance.redis)})


async def _examine(settings: "Settings", rebuild: bool, say: "Say") -> "Report":
    from workron.errors import StoreBroken
    from workron.store import Store

    async with Store.connect(settings) as store:
        with suppress(StoreBroken):  # what says it has another type, as the report will say
            await store.check_version()
    async with Store.connect(settings, budget_s=_CALL_S) as store:
        return await store.doctor.examine(rebuild=rebuild, say=say)


def _document(report: "Report") -> dict[str, Any]:
    return {
        "healthy": not (report.faults or report.uncounted),
        "keys": report.keys,
        "jobs": report.jobs,
        "seconds": round(report.seconds, 3),
        "uncounted": report.uncounted or None,
        "rollbacks": report.rollbacks,
        "rolled_back": report.rolled_back or None,
        "faults": [_fault(fault) for fault in report.faults],
        "mended": [_fault(fault) for fault in report.mended],
    }


def _fault(fault: "Fault") -> dict[str, Any]:
    kind = fault.kind
    return {
        "code": fault.code,
        "about": fault.about,
        "detail": fault.detail,
        "what": kind.what,
        "mend": kind.by_hand or "rebuild",
    }


def _print(report: "Report", rebuild: bool) -> None:
    looked_at = f"{counted(report.keys, 'key')}, including {counted(report.jobs, 'job')}, in {report.seconds:.1f} s"
    if report.faults:
        heading, style = counted(len(report.faults), "fault"), "bold red"
    elif report.keys == 0:
        heading, style = "no data", "bold yellow"
    elif report.uncounted:
        heading, style = "no faults, but counters were not compared", "bold yellow"
    else:
        heading, style = "no faults", "bold green"
    facts = [("checked", looked_at)]
    if report.mended:
        facts.append(("repaired", counted(len(report.mended), "fault")))
    if report.rollbacks:
        times = counted(report.rollbacks, "time")
        facts.append(("rolled back", f"{times}: Redis returned to an older state ({report.rolled_back})"))
    print_card(heading, style, facts)
    for faults in _by_code(report.mended):
        print_card(f"repaired: {faults[0].code}", "bold green", _facts(faults, mended=True))
    for faults in _by_code(report.faults):
        print_card(faults[0].code, "bold red", _facts(faults, mended=False))
    if report.faults and not rebuild and any(not fault.kind.by_hand for fault in report.faults):
        notice("`workron doctor --rebuild` mends what follows from the jobs; claims and all other calls wait meanwhile")


def _by_code(faults: "Sequence[Fault]") -> "list[list[Fault]]":
    groups: dict[str, list[Fault]] = defaultdict(list)
    for fault in faults:
        groups[fault.code].append(fault)
    return list(groups.values())


def _facts(faults: "Sequence[Fault]", *, mended: bool) -> Iterator[tuple[str, str]]:
    kind = faults[0].kind
    yield "what", kind.what
    for fault in faults[:_SHOWN]:
        yield "found", printable(f"{fault.about}  {fault.detail}".rstrip())
    if len(faults) > _SHOWN:
        yield "", f"and {len(faults) - _SHOWN:,} more (-o json names all)"
    if not mended:
        yield "mend", kind.by_hand or "workron doctor --rebuild"
