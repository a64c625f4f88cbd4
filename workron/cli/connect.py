"""The API that a command uses: the given one, otherwise that of the `workron up` on this machine."""

import math
import os
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import click

from workron.cli.exits import CliError, Exit, notice

if TYPE_CHECKING:
    from workron.client import Client
    from workron.local.instances import Instance


class ApiOptions(NamedTuple):
    """Options of all commands that use the API."""

    url: str | None = None
    no_wait: bool = False


def api_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of all commands that use the API; the function gets them as `api`."""

    @click.option(
        "--url",
        envvar="WORKRON_URL",
        show_envvar=True,
        metavar="URL",
        help="URL of the API; by default the instance on this machine. The key comes from WORKRON_API_KEY",
    )
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
    key = os.environ.get("WORKRON_API_KEY") or None
    if url is None:
        instance = local_instance()
        return Endpoint(instance.url, key or _key_of(instance))
    from workron.client.connection import check_url

    check_url(url)
    if key is None:
        same = [instance for instance in _instances() if _address(instance.url) == _address(url)]
        key = _key_of(same[0]) if same else None
    return Endpoint(url, key)


def local_instance() -> "Instance":
    """Return the `workron up` on this machine for a command without a URL."""
    return choose(_instances())


def _instances() -> "list[Instance]":
    from workron.local.instances import find

    return find()


def choose(instances: "Sequence[Instance]") -> "Instance":
    """Return the instance of the data directory in force, otherwise the newest, with a notice if there are several."""
    if not instances:
        raise CliError(
            "no workron is running on this machine: start one with `workron up`, or give --url or WORKRON_URL",
            Exit.NOTHING_RUNS,
        )
    if len(instances) == 1:
        return instances[0]
    from workron.cli.config import Sources, load

    home = load({}).data_dir.absolute()
    here = [instance for instance in instances if Path(instance.data_dir) == home]
    chosen = max(here or instances, key=lambda instance: instance.started_at)
    if not here or Sources({}).origin("data_dir") == "default":
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


def _address(url: str) -> tuple[str | None, int | None]:
    parts = urlsplit(url)
    host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname
    return host, parts.port
