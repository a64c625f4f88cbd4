"""The API that a command uses: the given one, otherwise that of the `workron up` on this machine."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

import click

from workron.cli.exits import CliError, Exit, notice

if TYPE_CHECKING:
    from workron.client import Client
    from workron.local.instances import Instance


_VARIABLE: Final = "WORKRON_DATA_DIR"


class ApiOptions(NamedTuple):
    """Options of all commands that use the API."""

    url: str | None = None
    no_wait: bool = False


def url_option(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option `--url` with this help."""
    return click.option("--url", envvar="WORKRON_URL", show_envvar=True, metavar="URL", help=text)


def api_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of all commands that use the API; the function gets them as `api`."""

    @url_option("URL of the API; by default the instance on this machine. The key comes from WORKRON_API_KEY")
    @click.option(
        "--no-wait",
        is_flag=True,
        help="fail at once if the API is unavailable (default: retry for a minute) or the queue is full (default: "
        "wait for room)",
    )
    @wraps(function)
    def call(url: str | None, no_wait: bool, **values: Any) -> Any:
        return function(api=ApiOptions(url, no_wait), **values)

    return call


def client_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the same options; the function gets a client of the API as `client`."""

    @api_options
    @wraps(function)
    def call(api: ApiOptions, **values: Any) -> Any:
        with client_for(locate(api.url), api) as client:
            return function(client=client, **values)

    return call


class Endpoint(NamedTuple):
    """An API's URL and key."""

    url: str
    key: str | None

    @property
    def is_local(self) -> bool:
        """Whether the API runs on this machine."""
        from workron.client.connection import is_loopback

        return is_loopback(self.url)


def client_for(endpoint: Endpoint, options: ApiOptions) -> "Client":
    """Return a client that reports outages on stderr."""
    from workron.client import Client
    from workron.client.transport import PATIENCE_S

    patience_s, room_patience_s = (0.0, 0.0) if options.no_wait else (PATIENCE_S, math.inf)
    return Client(endpoint.url, endpoint.key, patience_s=patience_s, room_patience_s=room_patience_s, notify=notice)


def locate(url: str | None) -> Endpoint:
    """Return the API at `url`, otherwise the local one; the environment's key overrides that of a key file."""
    instance = find_instance(url)
    found = instance.url if instance and url is None else url
    assert found is not None  # noqa: S101 - without a URL there is an instance
    key = os.environ.get("WORKRON_API_KEY") or None
    if key is None and instance is not None:
        key = _key_of(instance)
    return Endpoint(found, key)


def find_instance(url: str | None, flags: Mapping[str, Any] | None = None) -> "Instance | None":
    """Return the `workron up` on this machine with this URL, None if another machine or process has it.

    Without a URL, it is that of the data directory in force; raise CliError if there is none. A command with settings
    gives its flags.
    """
    from workron.local.instances import find

    if url is None:
        return choose(find(), flags)
    from workron.client.connection import check_url

    check_url(url)
    return next((instance for instance in find() if _address(instance.url) == _address(url)), None)


def choose(instances: "Sequence[Instance]", flags: Mapping[str, Any] | None = None) -> "Instance":
    """Return the instance of the data directory in force.

    If only a default names that directory and no instance uses it, return the newest, with a notice if there are
    several.
    """
    if not instances:
        raise CliError(
            "no workron is running on this machine: start one with `workron up`, or give --url or WORKRON_URL",
            Exit.NOTHING_RUNS,
        )
    if len(instances) == 1 and flags is None and _VARIABLE not in os.environ:
        return instances[0]  # the settings take long to import
    from workron.cli.config import Sources, load

    flags = flags or {}
    settings, origin = load(flags), Sources(flags).origin("data_dir")
    home = settings.data_dir and settings.home
    here = [instance for instance in instances if Path(instance.data_dir) == home]
    if not here and origin != "default":
        raise CliError(
            f"no workron is running on this machine with its data in {home} ({origin}): start it with `workron up`, "
            f"or choose another one with --url, such as {instances[0].url}",
            Exit.NOTHING_RUNS,
        )
    chosen = max(here or instances, key=lambda instance: instance.started_at)
    if len(instances) > 1 and origin == "default":
        notice(
            f"{len(instances)} instances are running on this machine; using {chosen.url} "
            f"(data in {chosen.data_dir}), choose another with --url"
        )
    return chosen


def _key_of(instance: "Instance") -> str | None:
    if instance.key_file is None:
        return None
    from workron.errors import StartupError
    from workron.local.instances import read_key

    try:
        return read_key(Path(instance.key_file))
    except StartupError as error:
        raise CliError(str(error), Exit.REFUSED) from error


def _address(url: str) -> tuple[str | None, int]:
    parts = urlsplit(url)
    host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname
    return host, parts.port or (443 if parts.scheme == "https" else 80)
