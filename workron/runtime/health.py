"""The answers of a process to health checks: see `workron.healthcheck`, which asks.

A process answers from its event loop, so one that hangs does not answer. Nothing is done between two questions.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from workron import healthcheck
from workron.runtime.async_tools import end
from workron.runtime.logger import log

_ANSWER_S: Final = 3.0
"""Less than the health check waits."""
_ASK_S: Final = 2.0

Check = Callable[[], Awaitable[str | None]]
"""Returns why the process is unhealthy, None if it is healthy."""


class Health:
    """What a process answers: that it is starting, until it sets `check`."""

    def __init__(self) -> None:
        self.check: Check = _starting

    async def answer(self) -> bytes:
        """Return what the check says, in one line."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                problem = await self.check()
        except TimeoutError:
            problem = "no answer in time"
        except Exception as error:  # noqa: BLE001 - whatever it is, the process is not healthy
            problem = f"{type(error).__name__}: {error}"
        return healthcheck.OK if problem is None else " ".join(problem.split()).encode()


async def _starting() -> str | None:
    return "still starting: see its log"


@asynccontextmanager
async def answering(process: str) -> AsyncIterator[Health]:
    """Answer the health checks of this process until the context is left."""
    health, answers = Health(), set[asyncio.Task[None]]()
    if sys.platform != "linux":  # no abstract names, and no containers
        yield health
        return
    try:
        loop = asyncio.get_running_loop()
        name = healthcheck.address(process, os.getpid())
        server = await loop.create_unix_server(lambda: _Answer(health, answers), name)  # type: ignore[arg-type]  # bytes do
    except OSError as error:
        log.warning("health checks are not answered", error=str(error))
        yield health
        return
    try:
        yield health
    finally:
        server.close()
        await end(answers)


class _Answer(asyncio.Protocol):
    """One connection: the answer is sent at once, and ends it."""

    def __init__(self, health: Health, answers: set[asyncio.Task[None]]) -> None:
        self._health = health
        self._answers = answers

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a stream
        if not healthcheck.is_trusted(transport.get_extra_info("socket")):
            transport.abort()
            return
        task = asyncio.create_task(self._send(transport))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _send(self, transport: asyncio.Transport) -> None:
        try:
            transport.write(await self._health.answer())
        finally:
            transport.close()


async def ask(process: str, pid: int) -> str | None:
    """Return why another process is unhealthy, None if it is healthy; like `healthcheck.ask`, without blocking."""
    try:
        async with asyncio.timeout(_ASK_S):
            reader, writer = await asyncio.open_unix_connection(healthcheck.address(process, pid))  # type: ignore[arg-type]
            try:
                if not healthcheck.is_trusted(writer.get_extra_info("socket"), pid):
                    return f"another process answers in place of {process} (pid {pid})"
                answer = await reader.read(healthcheck.MOST_BYTES)
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return f"{process} does not answer"
    return None if answer == healthcheck.OK else f"{process}: {answer.decode(errors='replace')}"
