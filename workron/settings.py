"""Settings: flags over `WORKRON_…` variables over `workron.toml` over defaults.

Built once in a command of `workron/cli` and passed on; no other code reads them. Durations are seconds as
float here, written by users as `0.1s`, `30s`, `5m`, `24h`, `7d` or plain seconds.
"""

import os
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator

from workron.durations import parse_duration
from workron.errors import SettingsError
from workron.names import NAME

PREFIX: Final = "WORKRON_"
FILE: Final = "workron.toml"
LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


def _split(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _not_empty(value: Any) -> Any:
    if value == "":
        raise ValueError("is empty: name a path, or leave it out")  # it would be the current directory
    return value


Duration = Annotated[float, BeforeValidator(parse_duration), Field(gt=0)]
NamedPath = Annotated[Path, BeforeValidator(_not_empty)]
Names = Annotated[list[str], BeforeValidator(_split)]
Limit = Annotated[int, Field(ge=0)] | Literal["none"] | None
_QUEUE_WITH_WEIGHT: Final = rf"^{NAME}(:[1-9][0-9]{{0,5}})?$"
QueueNames = Annotated[list[Annotated[str, Field(pattern=_QUEUE_WITH_WEIGHT)]], BeforeValidator(_split)]


def default_data_dir() -> Path | None:
    """Return `$XDG_DATA_HOME/workron`, by default `~/.local/share/workron`; None for a user without a home.

    A relative path names a different directory in each working directory: it is ignored, as XDG requires.
    """
    base = Path(os.environ.get("XDG_DATA_HOME", ""))
    if base.is_absolute():
        return base / "workron"
    home = Path(os.environ.get("HOME", ""))
    if not home.is_absolute():
        home = Path(_home_of_user())
    return home / ".local/share/workron" if home.is_absolute() else None


def _home_of_user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # such as a container that runs as any uid
        return ""


class Settings(BaseModel):
    """All settings of all processes; each process uses the ones it needs."""

    model_config = ConfigDict(extra="forbid", validate_default=True)

    redis: SecretStr | None = Field(
        None,
        description="URL of a Redis of your own: redis://, rediss:// or unix://; redis+sentinel:// or redis+cluster://",
    )
    namespace: str = Field(
        "default", pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="prefix that separates schedulers sharing one server"
    )
    allow_eviction: bool = Field(False, description="start although the server may evict keys (jobs can be lost)")

    host: str = Field("127.0.0.1", description="address the API listens on")
    port: int = Field(8080, ge=0, le=65535, description="port the API listens on; 0 picks a free one")
    allowed_hosts: Names = Field([], description="Host names the API accepts in addition to loopback and `host`")
    api_key: SecretStr | None = Field(None, description="key of the API; created in the data directory if not given")
    api_key_file: NamedPath | None = Field(
        None, description="file that holds the key of the API, such as a container secret"
    )
    no_auth: bool = Field(False, description="no API key; only on a loopback address")
    unfenced: Literal["never", "safe", "always"] = Field(
        "safe",
        description="whether to accept worker reports without the claim's fence: safe accepts them unless another "
        "worker may hold the job; always may accept the report of a worker that has lost the job",
    )
    max_body: int = Field(32 * 1024 * 1024, ge=1024, description="largest request body, bytes")

    audit_entries: int = Field(
        10_000, ge=0, le=1_000_000, description="entries kept in the audit log (`workron audit`); 0: no audit log"
    )

    max_pending: Limit = Field(
        None,
        description="maximum of waiting jobs in a queue without its own limit; stored in Redis for all API servers "
        "until another start changes it, `none` removes it",
    )
    max_pending_total: Limit = Field(
        None, description="maximum of waiting jobs in all queues together; stored in the same way"
    )
    max_memory_share: float = Field(
        0.8,
        gt=0,
        le=1,
        description="share of Redis' maxmemory beyond which new jobs and output are rejected; set it for all reapers",
    )

    data_dir: NamedPath | None = Field(
        default_factory=default_data_dir, description="directory of the embedded server's data and the key file"
    )

    api: str | None = Field(
        None, pattern=r"^https?://\S+$", description="URL of the API that a worker uses instead of Redis"
    )
    token: SecretStr | None = Field(None, description="key for that API; the API key by default")
    worker_name: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9_.:@=+-]{1,64}$",
        description="name of the worker, a unique suffix is added; the host name by default",
    )
    slots: int = Field(
        default_factory=lambda: os.cpu_count() or 1, ge=0, le=10_000, description="commands a worker runs concurrently"
    )
    queues: QueueNames = Field(
        ["default"],
        min_length=1,
        description="queues a worker serves, in order of priority; or by weights: critical:4,default:1",
    )

    lease: Duration = Field(
        30.0, description="duration of a job's lease: a worker without a heartbeat for this long loses its jobs"
    )
    heartbeat: Duration | None = Field(
        None, description="interval between heartbeats of a worker; min(5s, lease / 3) by default"
    )
    reap_every: Duration = Field(1.0, description="interval between checks of the reaper for expired leases")
    retry_delay: Duration = Field(
        1.0, description="delay before the second attempt; doubles with each further attempt, with jitter"
    )
    retry_max_delay: Duration = Field(3600.0, description="maximum delay between two attempts")
    kill_grace: Duration = Field(5.0, description="time between TERM and KILL for a command that is stopped")
    drain_timeout: Duration = Field(
        30.0,
        description="how long a stopping worker lets its commands finish before it releases their jobs",
    )
    retention_done: Duration = Field(86_400.0, description="how long done and cancelled jobs are kept")
    retention_failed: Duration = Field(
        7 * 86_400.0, description="how long failed jobs, and those skipped because of them, are kept"
    )

    log_format: Literal["auto", "console", "json"] = Field("auto", description="auto: console on a terminal, else json")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="minimum log level")

    @property
    def home(self) -> Path:
        """The data directory, for a process that needs one."""
        if self.data_dir is None:
            raise SettingsError(
                "this user has no home directory for the data: name a directory with --data-dir or WORKRON_DATA_DIR"
            )
        try:
            return self.data_dir.absolute()
        except FileNotFoundError:
            raise SettingsError(
                f"the current directory no longer exists, and data_dir {self.data_dir} is relative to it"
            ) from None

    @property
    def heartbeat_s(self) -> float:
        return self.heartbeat or min(5.0, self.lease / 3)

    @model_validator(mode="after")
    def _consistent(self) -> "Settings":
        if self.lease <= 2 * self.heartbeat_s:
            raise ValueError(
                f"lease ({self.lease:g}s) must be more than twice the heartbeat ({self.heartbeat_s:g}s): "
                "one late heartbeat would lose every running job"
            )
        if self.no_auth and self.host not in LOOPBACK:
            raise ValueError(f"no_auth is refused on {self.host}: everyone who reaches that address could run commands")
        return self


def from_variables() -> dict[str, str]:
    """Return the values of settings in the environment. The case of a variable's name does not matter."""
    names = {f"{PREFIX}{name.upper()}": name for name in Settings.model_fields}
    variables = ((names.get(variable.upper()), value) for variable, value in os.environ.items())
    return {name: value for name, value in variables if name is not None}


def from_file() -> dict[str, Any]:
    """Return what `workron.toml` in the current directory holds; raise OSError or ValueError if it is unreadable.

    A directory that this user may not search has no file for this user.
    """
    path = Path(FILE)
    if not os.access(".", os.X_OK) or not path.is_file():
        return {}
    import tomllib

    return tomllib.loads(path.read_text(encoding="utf-8"))
