"""The way to Redis: every client is built here, every redis-py error is translated here.

redis-py's defaults differ between its constructors: `Redis(host=…)` retries ten times and may apply a command twice,
`from_url` never retries. Here nothing is left to them: the client itself never retries; `Connection` repeats a call
that its caller declares safe to repeat.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import hiredis
from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis, connection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError

from workron.errors import StoreBroken, StoreFull, StoreUnavailable

SOCKET_TIMEOUT_S: Final = 5.0
BLOCK_S: Final = SOCKET_TIMEOUT_S - 1
"""Longest wait of a blocking command: the socket must not time out first."""

_AWAY: Final = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.BusyLoadingError,
    exceptions.ReadOnlyError,
    exceptions.ClusterDownError,
    exceptions.TryAgainError,
    exceptions.AskError,
    OSError,
)
_AWAY_CODES: Final = ("BUSY", "MISCONF", "NOREPLICAS", "MASTERDOWN", "LOADING", "READONLY", "CLUSTERDOWN", "TRYAGAIN")
_REFUSED: Final = (exceptions.AuthenticationError, exceptions.NoPermissionError)

Command = Sequence[str | int | float | bytes]


class _Quick(connection.AbstractConnection):
    """Packs and sends commands in its own way.

    redis-py packs in Python, at 1.5 µs an argument (a submission of 400 jobs has 3,000), and sends each command in a
    task of its own, by a `wait_for` that swallows cancels before Python 3.12.
    """

    def pack_command(self, *args: Any) -> list[bytes]:
        name, *rest = args
        return [hiredis.pack_command((*name.split(), *rest))]

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        if not self.is_connected:
            await self.connect_check_health(check_health=False)
        if check_health:
            await self.check_health()  # type: ignore[no-untyped-call] # redis-py
        writer = self._writer
        if writer is None:
            raise exceptions.ConnectionError("the connection was closed")
        try:
            writer.writelines([command] if isinstance(command, bytes) else command)
            async with asyncio.timeout(self.socket_timeout):
                await writer.drain()
        except BaseException:
            await self.disconnect(nowait=True)
            raise


class _TcpConnection(_Quick, connection.Connection):
    pass


class _TlsConnection(_Quick, connection.SSLConnection):
    pass


class _UnixConnection(_Quick, connection.UnixDomainSocketConnection):
    pass


_PACKED: Final = {kind.__mro__[2]: kind for kind in (_TcpConnection, _TlsConnection, _UnixConnection)}


def build_client(url: str, *, connections: int = 16) -> Redis:
    """Return a client for `redis://`, `rediss://` or `unix://` that never retries by itself."""
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=connections,
        timeout=SOCKET_TIMEOUT_S,
        socket_timeout=SOCKET_TIMEOUT_S,
        socket_connect_timeout=2.0,
        **({} if url.startswith("unix:") else {"socket_keepalive": True}),
        health_check_interval=15,
        retry=Retry(NoBackoff(), 0),
        protocol=3,
    )
    pool.connection_class = _PACKED[pool.connection_class]
    return Redis.from_pool(pool)


def _translate(error: Exception) -> Exception:
    text = str(error)
    if isinstance(error, exceptions.OutOfMemoryError) or text.startswith("OOM"):
        return StoreFull("Redis has no memory left for new work", retry_after_s=5.0)
    if isinstance(error, _REFUSED):
        return StoreUnavailable(f"Redis refuses us: {text}", retry_after_s=5.0)
    if isinstance(error, _AWAY) or text.startswith(_AWAY_CODES):
        return StoreUnavailable(f"Redis can't be reached: {text or type(error).__name__}")
    if isinstance(error, NoScriptError):
        return error
    return StoreBroken(f"Redis answered with an error: {text}", retry_after_s=5.0)


class Connection:
    """Calls to one Redis server, each within `budget_s` seconds or answered by StoreUnavailable."""

    def __init__(self, client: Redis, *, url: str | None = None, budget_s: float = 2.0) -> None:
        self._client = client
        self._url = url
        self._budget_s = budget_s

    @classmethod
    def open(cls, url: str, *, budget_s: float = 2.0) -> "Connection":
        try:
            return cls(build_client(url), url=url, budget_s=budget_s)
        except ValueError as error:
            raise StoreUnavailable(f"this is not a Redis URL: {error}") from error

    async def call(self, *command: str | int | float | bytes, repeat: bool = True) -> Any:
        """Run one command; `repeat` says that running it twice does no harm."""
        return await self._within_budget(lambda: self._execute(command), repeat)

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """Run reading commands in one round trip; an item may be an exception."""
        if not commands:
            return []

        async def run() -> list[Any]:
            pipe = self._client.pipeline(transaction=False)
            for command in commands:
                pipe.execute_command(*command)
            return await pipe.execute(raise_on_error=False)

        answers: list[Any] = await self._within_budget(run, True)
        return answers

    def _execute(self, command: Command) -> Awaitable[Any]:
        answer: Awaitable[Any] = self._client.execute_command(*command)  # type: ignore[no-untyped-call] # redis-py
        return answer

    async def _within_budget(self, run: Callable[[], Awaitable[Any]], repeat: bool) -> Any:
        pause_s = 0.05
        last: Exception | None = None
        try:
            async with asyncio.timeout(self._budget_s):
                while True:
                    try:
                        return await run()
                    except (exceptions.RedisError, OSError) as error:
                        last = _translate(error)
                        if not repeat or type(last) is not StoreUnavailable:
                            raise last from error
                    await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, not a secret
                    pause_s *= 2
        except TimeoutError as error:
            raise last or StoreUnavailable(f"Redis did not answer within {self._budget_s:g} s") from error

    @asynccontextmanager
    async def own(self) -> AsyncIterator["Connection"]:
        """Give a connection of its own, for commands that block (at most `BLOCK_S` seconds)."""
        if self._url is None:  # an injected client (fakeredis): its calls never block the server
            yield self
            return
        client = build_client(self._url, connections=1)
        try:
            yield Connection(client, url=self._url, budget_s=SOCKET_TIMEOUT_S)
        finally:
            await client.aclose()

    async def messages(self, channel: str) -> AsyncIterator[str]:
        """Yield messages published on a channel; raises StoreUnavailable when the subscription breaks."""
        async with self._client.pubsub(ignore_subscribe_messages=True) as subscription:
            try:
                await subscription.subscribe(channel)
                while True:
                    message = await subscription.get_message(timeout=BLOCK_S)
                    if message is not None:
                        yield message["data"].decode()
            except (exceptions.RedisError, OSError) as error:
                raise _translate(error) from error

    async def aclose(self) -> None:
        await self._client.aclose()
