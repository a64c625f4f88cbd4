"""Announces a ready `workron up` to users and the CLI."""

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from workron.errors import StartupError
from workron.local import instances
from workron.local.addresses import http_url
from workron.local.embedded import EmbeddedServer
from workron.runtime import logs
from workron.runtime.logger import log
from workron.settings import Settings


class Announcement:
    """Logged once, registered until the context is left."""

    def __init__(self, settings: Settings, key: instances.ApiKey | None, server: EmbeddedServer | None) -> None:
        self._settings = settings
        self._key = key
        self._server = server
        self._instance: instances.Instance | None = None
        self._file: Path | None = None

    def show(self) -> None:
        """Register this instance and log it, on a terminal as a few lines to copy from."""
        pid, birth = instances.this_process()
        self._instance = instances.Instance(
            pid=pid,
            started_at=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            url=http_url(self._settings.host, self._settings.port),
            key_file=str(self._key.file) if self._key and self._key.file else None,
            data_dir=str(self._settings.home),
            redis=self._server.url if self._server else None,
            birth=birth,
        )
        self.renew()
        facts = self._facts(self._instance)
        if logs.uses_console(self._settings):
            lines = (f"  {name:<10}{logs.printable(value)}" for name, value in facts.items())
            text = "\n".join(["", "workron is ready", "", *lines, "", ""])
            logs.write(text.encode("utf-8", "backslashreplace"))
        else:
            log.info("ready", **facts)

    def renew(self) -> None:
        """Rewrite the registration: files that look old are removed from temporary directories."""
        if self._instance is None:
            return
        try:
            self._file = instances.register(self._instance)
        except (StartupError, OSError) as error:
            log.warning("instance not announced, other commands can't find it", error=str(error))

    def _facts(self, instance: instances.Instance) -> dict[str, str]:
        workron = "uv run workron" if "UV_RUN_RECURSION_DEPTH" in os.environ else "workron"
        facts = {"url": instance.url}
        if self._key:
            facts["key"] = instance.key_file or "the one in the settings"
        else:
            facts["key"] = "none is needed: every local user can run commands as you"
        facts["data"] = instance.data_dir
        facts["redis"] = self._server.redis_cli or self._server.url if self._server else "your own server"
        facts["try"] = f"{workron} run -- echo hello"
        return facts

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file:
            with suppress(OSError):
                self._file.unlink(missing_ok=True)
