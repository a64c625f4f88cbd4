"""The supervisor of `workron up`: runs the embedded server and Workron's processes, and stops them in order."""

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, Final, Protocol

from pydantic import SecretStr

from workron.errors import NoRoom, StartupError
from workron.local import child_specs, instances, secure_files
from workron.local.addresses import free_port
from workron.local.announcement import Announcement
from workron.local.child import Child
from workron.local.child_specs import ChildSpec
from workron.local.embedded import EmbeddedServer
from workron.local.prepared import Prepared
from workron.local.processes import how_it_ended
from workron.runtime import logs
from workron.runtime.health import answering
from workron.runtime.lifeline import Lifeline
from workron.runtime.logger import log
from workron.runtime.signals import StopSignals, happens
from workron.settings import Settings

_LEFTOVER_S: Final = 15.0
"""How long children of a killed `up` may take to release the port."""
_FIRST_DELAY_S: Final = 0.2
_LONGEST_DELAY_S: Final = 30.0
_LONGEST_AFTER_KILL_S: Final = 2.0
_STEADY_S: Final = 60.0
"""A process that lived this long is restarted without the accumulated delay."""
_READY_POLL_S: Final = 0.03
_STILL_WAITING_S: Final = 15.0
_HOUSEKEEPING_S: Final = 60.0


class SpecFactory(Protocol):
    def __call__(self, settings: Settings, api_key: str | None, *, embedded: bool) -> Sequence[ChildSpec]: ...


def run(
    settings: Settings, specs: SpecFactory = child_specs.specs, prepared: Mapping[str, Prepared] | None = None
) -> int:
    """Run `workron up` until a stop signal; return the exit code. Raises StartupError if nothing was started.

    `prepared` are processes for the first start of children, by name.
    """
    logs.configure(settings, "up")
    return asyncio.run(_up(settings, specs, prepared or {}))


async def _up(settings: Settings, specs: SpecFactory, prepared: Mapping[str, Prepared]) -> int:
    """Take the exclusive resources, then start, keep and stop everything."""
    async with AsyncExitStack() as stack:
        stop = stack.enter_context(StopSignals())
        health = await stack.enter_async_context(answering("up"))
        data_dir = secure_files.make_dir(settings.home)
        server = None if settings.redis else EmbeddedServer(data_dir)
        if server:
            server.lock()
            stack.push_async_callback(server.stop)
        held = [server.lifeline_fd] if server else []
        lifeline = stack.enter_context(Lifeline(secure_files.open_lock(data_dir / "children"), *held))
        patience_s = _LEFTOVER_S if lifeline.leftovers else 0.0
        port = await free_port(settings.host, settings.port, patience_s=patience_s)
        key = instances.api_key(settings)

        url = SecretStr(server.url) if server else settings.redis
        settings = settings.model_copy(update={"data_dir": data_dir, "port": port, "redis": url})
        announcement = stack.enter_context(Announcement(settings, key, server))
        members = specs(settings, key.value if key else None, embedded=server is not None)
        family = [Child(spec, lifeline, prepared.get(spec.name)) for spec in members]
        supervisor = Supervisor(family, server, stop, announcement)
        health.check = supervisor.problem
        return await supervisor.run()


class Supervisor:
    """Keeps a server and children running until a stop signal, or until one of them fails to start."""

    def __init__(
        self,
        family: Sequence[Child],
        server: EmbeddedServer | None,
        stop: StopSignals,
        announcement: Announcement,
    ) -> None:
        self._family = family
        self._server = server
        self._stop = stop
        self._announcement = announcement
        self._ready = False
        self._exit_code = 0
        self._failure: StartupError | None = None

    async def run(self) -> int:
        """Start everything, wait for a stop signal, stop the children in order. The owner stops the server."""
        if self._server and not await self._unless_stopping(self._server.start()):
            return 0
        async with asyncio.TaskGroup() as tasks:
            background = [tasks.create_task(self._housekeeping()), tasks.create_task(self._keep_server())]
            background.append(tasks.create_task(self._start(tasks)))
            await self._stop.stopping.wait()
            background.pop().cancel()
            await self._stop_family()
            for task in background:
                task.cancel()
        if self._failure:
            raise self._failure
        self._tell("stopped", exit_code=self._exit_code)
        return self._exit_code

    async def problem(self) -> str | None:
        """Return what is wrong with the children, None if all are healthy."""
        if not self._ready:
            return "still starting"
        problems = await asyncio.gather(*(child.problem() for child in self._family))
        return "; ".join(filter(None, problems)) or None

    async def _start(self, tasks: asyncio.TaskGroup) -> None:
        for child in self._family:
            tasks.create_task(self._keep(child))
            if child.spec.first:
                await self._becomes_ready(child)
        for child in self._family:
            await self._becomes_ready(child)
        self._ready = True
        self._announcement.show()

    async def _keep(self, child: Child) -> None:
        """Restart a child whenever it ends, until everything stops."""
        delays, name = Backoff(), child.spec.name
        while not self._stop.stopping.is_set():
            started_s = time.monotonic()
            code = await child.live()
            if self._stop.stopping.is_set():
                return
            if code > 0 and not self._ready:
                self._give_up(code, child)
                return
            delay_s = delays.after(time.monotonic() - started_s)
            if code < 0:  # it did not give up by itself: jobs that kill their worker must not keep the others waiting
                delay_s = min(delay_s, _LONGEST_AFTER_KILL_S)
            log.warning("process ended, restarting", child=name, how=how_it_ended(code), in_s=delay_s)
            await happens(self._stop.stopping, within_s=delay_s)

    def _give_up(self, code: int, child: Child) -> None:
        # It said why in its own words, and that shall be the only line. A new attempt would say the same.
        log.debug("process failed to start", child=child.spec.name, exit_code=code)
        self._exit_code = code
        self._stop.stop()

    async def _keep_server(self) -> None:
        delays = Backoff()
        while self._server:
            started_s = time.monotonic()
            try:
                try:
                    how = await self._server.wait()
                except NoRoom as error:
                    await self._outlast_full_disk(self._server, error, delays.after(time.monotonic() - started_s))
                    continue
                delay_s = delays.after(time.monotonic() - started_s)
                log.error("embedded server ended, restarting", how=how, in_s=delay_s)
                await asyncio.sleep(delay_s)
                await self._server.start()
            except StartupError as error:
                self._failure = error
                self._stop.stop()
                return

    async def _outlast_full_disk(self, server: EmbeddedServer, full: NoRoom, delay_s: float) -> None:
        """Restart the server when there is room. Until then the API reports an unavailable store."""
        log.error("embedded server out of disk space, waiting to restart", error=str(full))
        began_s = time.monotonic()
        while True:
            await asyncio.sleep(delay_s)
            await server.room()
            with suppress(NoRoom):
                await server.start()
                log.info("embedded server restarted", away_s=round(time.monotonic() - began_s, 1))
                return
            delay_s = _LONGEST_DELAY_S

    async def _becomes_ready(self, child: Child) -> None:
        waits = 0
        while child.spec.ready and not await child.spec.ready():
            await asyncio.sleep(_READY_POLL_S)
            waits += 1
            if waits % int(_STILL_WAITING_S / _READY_POLL_S) == 0:
                log.warning("process not ready yet", child=child.spec.name)

    async def _stop_family(self) -> None:
        self._tell("stopping", hint="a second signal stops at once")
        for order in sorted({child.spec.stop_order for child in self._family}):
            members = (child for child in self._family if child.spec.stop_order == order)
            await asyncio.gather(*(child.stop(self._stop.now) for child in members))

    def _tell(self, event: str, **fields: Any) -> None:
        (log.debug if self._exit_code else log.info)(event, **fields)

    async def _housekeeping(self) -> None:
        while True:
            await asyncio.sleep(_HOUSEKEEPING_S)
            self._announcement.renew()
            if self._server:
                self._server.rotate_log()

    async def _unless_stopping(self, work: Coroutine[Any, Any, None]) -> bool:
        """Return whether the work was done before the stop signal."""
        task, stopping = asyncio.create_task(work), asyncio.create_task(self._stop.stopping.wait())
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
            return False
        task.result()
        return True


class Backoff:
    """Growing delays between restarts."""

    def __init__(self) -> None:
        self._next_s = _FIRST_DELAY_S

    def after(self, lived_s: float) -> float:
        """Return the delay before the next start after this lifetime."""
        delay_s = _FIRST_DELAY_S if lived_s >= _STEADY_S else self._next_s
        self._next_s = min(delay_s * 2, _LONGEST_DELAY_S)
        return delay_s
