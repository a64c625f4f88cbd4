"""Commands that start processes (up, api, worker, reaper), and `config`."""

import os
from collections.abc import Mapping
from typing import Any

import click
from pydantic import SecretStr

from workron.cli.command import command
from workron.cli.config import explain
from workron.cli.flags import SettingsCommand, settings_of, settings_options, warn_of_unknown_variables
from workron.cli.render import Column, Format, output_option, print_table
from workron.cli.values import COUNT
from workron.settings import Settings

Flags = Mapping[str, Any]


@command(
    "workron up",
    "workron up --port 9000 --data-dir /srv/workron --slots 4",
    "workron up --redis redis://db.example:6379/0",
    cls=SettingsCommand,
)
@settings_options
def up(flags: Flags) -> int:
    """Start everything on this machine: Redis (embedded), API, worker and reaper."""
    from workron.local.prepared import prepare
    from workron.local.supervisor import run

    settings = settings_of(flags)
    import_shared()
    modules = {name: module for name, module in _MODULES.items() if settings.slots or name != "worker"}
    with prepare(modules, _run) as prepared:
        return run(settings, prepared=prepared)


def import_shared() -> None:
    """Import what the processes of `up` share, before they are forked."""
    import workron.store.source
    import workron.store.store  # noqa: F401


def _run(name: str) -> int:
    """Run the command of a process of `up`: all its settings are in the environment."""
    from workron.cli.app import app

    code: int = app([name], prog_name="workron", standalone_mode=False)
    return code


@command(
    "workron api --redis redis://db.example:6379/0",
    "workron api --redis unix:///run/redis.sock --host 0.0.0.0 --allowed-hosts jobs.example",
    cls=SettingsCommand,
)
@settings_options
def api(flags: Flags) -> int:
    """Start one API server."""
    from api.server import run

    return run(settings_of(flags))


@command(
    "workron worker --redis redis://db.example:6379/0",
    "workron worker --redis redis://db.example:6379/0 --queues urgent,default --slots 8",
    "workron worker --redis redis://db.example:6379/0 --queues nightly --until-empty",
    "workron worker --redis redis://db.example:6379/0 --slots 1 --max-jobs 1 --drain-timeout 5m",
    cls=SettingsCommand,
)
@settings_options
@click.option(
    "--max-jobs",
    type=COUNT,
    help="exit after running this number of jobs, whatever their results",
)
@click.option(
    "--until-empty",
    is_flag=True,
    help="exit when every job of its queues has ended, including waiting jobs and those of other workers",
)
def worker(flags: Flags, max_jobs: int | None, *, until_empty: bool) -> int:
    """Start one worker. A stop signal drains it: it starts no more jobs, lets its jobs finish, and exits with 0."""
    from workers.limits import Limits
    from workers.main import run

    return run(_from_the_api_if_named(settings_of(flags)), Limits(max_jobs, until_empty))


@command(
    "workron reaper --redis redis://db.example:6379/0",
    "WORKRON_REDIS=redis://db.example:6379/0 workron reaper --retention-done 1h",
    cls=SettingsCommand,
)
@settings_options
def reaper(flags: Flags) -> int:
    """Start one reaper: it recovers the jobs of lost workers."""
    from reaper.main import run

    return run(settings_of(flags))


@command("workron config show", "WORKRON_LEASE=10s workron config show --port 9000", cls=SettingsCommand)
@settings_options
@output_option
def show_config(flags: Flags, output: Format) -> None:
    """Show all settings in force and their sources; secrets are masked."""
    warn_of_unknown_variables()
    print_table(explain(flags), output, _SETTINGS)


def _from_the_api_if_named(settings: Settings) -> Settings:
    """Default to WORKRON_URL if neither Redis nor an API is set, and to the key of an API on this machine."""
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


_MODULES = {"api": "api.server", "reaper": "reaper.main", "worker": "workers.main"}
"""The processes of `up`, with the modules that their commands import."""

_SETTINGS = (
    Column("SETTING", lambda setting: setting["name"]),
    Column("VALUE", lambda setting: setting["value"] or "-", flexible=True),
    Column("FROM", lambda setting: setting["origin"], style=_origin_style),
)
