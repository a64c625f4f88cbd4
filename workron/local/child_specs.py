"""The children of `workron up` as data: command, environment, and readiness check."""

import functools
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import SecretStr

from workron.local.addresses import http_ok, local_host
from workron.settings import PREFIX, Settings

_SERVICE_GRACE_S: Final = 10.0
_WORKER_MARGIN_S: Final = 5.0
"""Time in addition to a worker's own grace times, to report stopped jobs."""

ReadyCheck = Callable[[], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A process kept running by the supervisor."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    stop_order: int = 0
    """Children with a lower order are stopped before this one."""
    stop_grace_s: float = _SERVICE_GRACE_S
    """Time from TERM to KILL."""
    ready: ReadyCheck | None = None
    first: bool = False
    """Readiness check: the next children are started when this one is ready."""


def specs(settings: Settings, api_key: str | None, *, embedded: bool) -> list[ChildSpec]:
    """Return api, reaper and, with slots, worker. `settings` have the real port, and the Redis server in use."""
    shared = environment(settings.model_copy(update={"api_key": None, "api": None, "token": None}))
    with_key = shared | ({f"{PREFIX}API_KEY": api_key} if api_key else {})
    ready = functools.partial(http_ok, local_host(settings.host), settings.port, "/readyz")
    # The user's own server may be unsuitable: then one process says so, not three.
    api = ChildSpec("api", _workron("api"), with_key, stop_order=1, ready=ready, first=not embedded)
    reaper = ChildSpec("reaper", _workron("reaper"), shared, stop_order=2)
    grace_s = settings.drain_timeout + settings.kill_grace + _WORKER_MARGIN_S
    url = f"http://{local_host(settings.host)}:{settings.port}"  # for commands that add to their workflows
    with_url = shared | {f"{PREFIX}URL": url}
    worker = ChildSpec("worker", _workron("worker"), with_url, stop_order=0, stop_grace_s=grace_s)
    return [api, reaper, worker] if settings.slots else [api, reaper]


def _workron(command: str) -> Sequence[str]:
    return (sys.executable, "-m", "workron", command)


def environment(settings: Settings) -> dict[str, str]:
    """Return this process's environment with exactly these settings (an argv is visible to all users)."""
    inherited = {name: value for name, value in os.environ.items() if not name.upper().startswith(PREFIX)}
    given = {f"{PREFIX}{name.upper()}": _text(value) for name, value in settings if value is not None}
    return inherited | given


def _text(value: Any) -> str:
    match value:
        case SecretStr():
            return value.get_secret_value()
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.6f}"
        case list():
            return ",".join(value)
        case _:
            return str(value)
