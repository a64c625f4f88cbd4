"""One child process of the supervisor: started, stopped, and killed if it does not stop."""

import asyncio
import os
import signal
import subprocess
from typing import Final

from workron.local.child_specs import ChildSpec
from workron.local.prepared import Prepared
from workron.local.processes import Process, ended
from workron.runtime import lifeline
from workron.runtime.health import ask
from workron.runtime.lifeline import Lifeline
from workron.runtime.logger import log
from workron.runtime.logs import STDERR
from workron.runtime.signals import happens

_AT_ONCE_S: Final = 2.0


class Child:
    """A process in its own session that logs to our stderr and ends when we do."""

    def __init__(self, spec: ChildSpec, lifeline: Lifeline, prepared: Prepared | None = None) -> None:
        self.spec: Final = spec
        self._lifeline = lifeline
        self._prepared = prepared
        """Process for the first start."""
        self._process: Process | None = None
        self._gone = asyncio.Event()

    async def live(self) -> int:
        """Start the process and wait until it ends; return its return code like `subprocess`."""
        prepared, self._prepared = self._prepared, None
        try:
            self._process = prepared or self._spawn()
        except OSError as error:
            log.exception("process could not be spawned", child=self.spec.name, error=error.strerror)
            return -signal.SIGABRT
        self._gone.clear()
        log.debug("process started", child=self.spec.name, child_pid=self._process.pid)
        if prepared:
            await prepared.start(self.spec.env, self._lifeline.fds)
        await ended(self._process)
        code = self._process.wait()
        self._gone.set()
        return code

    def _spawn(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 — argv comes from our own code
            self.spec.argv,
            env={**self.spec.env, **lifeline.environment(self._lifeline.fds)},
            stdin=subprocess.DEVNULL,
            stdout=STDERR,
            pass_fds=self._lifeline.fds,
            start_new_session=True,
        )

    async def problem(self) -> str | None:
        """Return why the process is unhealthy, None if it is healthy."""
        if self._process is None or self._process.returncode is not None:
            return f"{self.spec.name} does not run"
        return await ask(self.spec.name, self._process.pid)

    async def stop(self, now: asyncio.Event) -> None:
        """Terminate the process and wait for it; kill it after its grace time, or soon after `now`.

        Another task must be in `live` meanwhile.
        """
        if not self._signal(signal.SIGTERM):
            return
        hurry = asyncio.create_task(self._hurry(now))
        try:
            if not await happens(self._gone, within_s=self.spec.stop_grace_s):
                log.warning("process did not stop in time, killing it", child=self.spec.name)
                self._signal(signal.SIGKILL)
                await self._gone.wait()
        finally:
            hurry.cancel()

    async def _hurry(self, now: asyncio.Event) -> None:
        await now.wait()
        self._signal(signal.SIGTERM)
        if not await happens(self._gone, within_s=_AT_ONCE_S):
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> bool:
        """Send a signal, unless the process is gone: its pid may be reused."""
        if self._process is None or self._process.returncode is not None:
            return False
        os.kill(self._process.pid, number)
        return True
