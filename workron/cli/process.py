"""Commands that start processes (up, api, worker, reaper), the tour, and what they are set to."""

from typing import TYPE_CHECKING, Any

import typer

from workron.cli.flags import flags
from workron.cli.render import Column, Format, FormatOption, print_table

if TYPE_CHECKING:
    from workron.settings import Settings


def up(ctx: typer.Context) -> int:
    """Start everything on this machine: Redis (embedded), API, worker and reaper."""
    from workron.supervisor import run

    return run(_settings(ctx))


def api(ctx: typer.Context) -> int:
    """Start one API server."""
    from api.server import run

    return run(_settings(ctx))


def worker(ctx: typer.Context) -> int:
    """Start one worker."""
    from workers.main import run

    return run(_settings(ctx))


def reaper(ctx: typer.Context) -> int:
    """Start one reaper: it takes back what dead workers held."""
    from reaper.main import run

    return run(_settings(ctx))


def demo() -> int:
    """See it recover from a crash: a tour of half a minute that cleans up after itself."""
    from workron.demo import run

    return run()


def show_config(ctx: typer.Context, output: FormatOption = Format.TABLE) -> None:
    """Show every setting in force and where it comes from; secrets are masked."""
    from workron.cli.config import explain

    print_table(explain(flags(ctx)), output, _SETTINGS)


def _settings(ctx: typer.Context) -> "Settings":
    from workron.cli.config import load

    return load(flags(ctx))


def _origin_style(setting: Any) -> str:
    return "dim" if setting["origin"] == "default" else "green"


_SETTINGS = (
    Column("SETTING", lambda setting: setting["name"]),
    Column("VALUE", lambda setting: setting["value"] or "-", flexible=True),
    Column("FROM", lambda setting: setting["origin"], style=_origin_style),
)
