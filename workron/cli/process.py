"""Commands that start processes (up, api, worker, reaper), the demo, and `config`."""

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workron.cli.exits import notice
from workron.cli.flags import flags
from workron.cli.render import Column, Format, FormatOption, print_table

if TYPE_CHECKING:
    from workron.settings import Settings


def up(ctx: typer.Context) -> int:
    """Start everything on this machine: Redis (embedded), API, worker and reaper."""
    from workron.local.supervisor import run

    return run(settings_of(ctx))


def api(ctx: typer.Context) -> int:
    """Start one API server."""
    from api.server import run

    return run(settings_of(ctx))


def worker(
    ctx: typer.Context,
    max_jobs: Annotated[
        int | None, typer.Option(metavar="N", help="exit after running this number of jobs, whatever their results")
    ] = None,
    until_empty: Annotated[
        bool,
        typer.Option(
            "--until-empty",
            help="exit when every job of its queues has ended, including waiting jobs and those of other workers",
        ),
    ] = False,
) -> int:
    """Start one worker. A stop signal drains it: it starts no more jobs, lets its jobs finish, and exits with 0."""
    if max_jobs is not None and max_jobs < 1:
        raise typer.BadParameter("must be at least 1", param_hint="--max-jobs")
    from workers.limits import Limits
    from workers.main import run

    return run(_from_the_api_if_named(settings_of(ctx)), Limits(max_jobs, until_empty))


def reaper(ctx: typer.Context) -> int:
    """Start one reaper: it recovers the jobs of lost workers."""
    from reaper.main import run

    return run(settings_of(ctx))


def demo() -> int:
    """Run a tour of half a minute: a job recovers from a crash. It cleans up after itself."""
    from workron.cli.demo import run

    return run()


def show_config(ctx: typer.Context, output: FormatOption = Format.TABLE) -> None:
    """Show all settings in force and their sources; secrets are masked."""
    from workron.cli.config import explain

    _tell_of_unknown_variables()
    print_table(explain(flags(ctx)), output, _SETTINGS)


def settings_of(ctx: typer.Context) -> "Settings":
    """Return the settings in force with the flags of this command."""
    from workron.cli.config import flag, load, secrets_among

    _tell_of_unknown_variables()
    given = flags(ctx)
    settings = load(given)
    for name in secrets_among(given):
        variable = f"WORKRON_{name.upper()}"
        notice(f"{flag(name)} is visible to every user of this machine: set {variable} instead")
    return settings


def _tell_of_unknown_variables() -> None:
    from workron.cli.config import unknown_variables

    for said in unknown_variables():
        notice(said)


def _from_the_api_if_named(settings: "Settings") -> "Settings":
    """Default to WORKRON_URL if neither Redis nor an API is set, and to the key of an API on this machine."""
    from pydantic import SecretStr

    from workron.cli.connect import locate
    from workron.local.instances import read_key

    url = settings.api or (None if settings.redis else os.environ.get("WORKRON_URL") or None)
    if url is None:
        return settings
    endpoint = locate(url)  # checks the URL
    token = settings.token or settings.api_key
    if token is None:
        key = read_key(settings.api_key_file) if settings.api_key_file else endpoint.key
        token = None if key is None else SecretStr(key)
    return settings.model_copy(update={"api": url, "token": token})


def _origin_style(setting: Any) -> str:
    return "dim" if setting["origin"] == "default" else "green"


_SETTINGS = (
    Column("SETTING", lambda setting: setting["name"]),
    Column("VALUE", lambda setting: setting["value"] or "-", flexible=True),
    Column("FROM", lambda setting: setting["origin"], style=_origin_style),
)
