"""Connections to Redis: builds all clients, translates all redis-py errors.

redis-py's defaults differ between its constructors: `Redis(host=…)` retries ten times and may apply a command twice,
`from_url` never retries. These defaults are overridden: the client never retries; `Connection` repeats a call
that its caller declares safe to repeat.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.driver_info import DriverInfo
from redis.exceptions import NoScriptError

from workron.errors import StoreBroken, StoreFull, StoreRefused, StoreUnavailable, is_outage
from workron.redis.lane import Command, Lane
from workron.redis.redis_url import check_url, why_refused, wrong_option
from workron.redis.topology import place_of, plain_url

SOCKET_TIMEOUT_S: Final = 5.0
BUDGET_S: Final = 1.8
"""Maximum duration of a call, so that a request is answered within 2 s."""
BLOCK_S: Final = SOCKET_TIMEOUT_S - 1
"""Maximum wait of a blocking command: the socket must not time out first."""

LEAST_S: Final = 0.25

GOOD_FOR_S: Final = 15.0
"""Maximum age of a read-only connection: a server that became a replica answers reads as before."""

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
_NO_ANSWER: Final = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)
_NO_WRITES_CODES: Final = ("MISCONF", "NOREPLICAS", "READONLY")
_AWAY_CODES: Final = (
    *("BUSY", "MASTERDOWN", "LOADING", "CLUSTERDOWN", "TRYAGAIN"),
    "UNBLOCKED",  # a call that waited while its server became a replica
)
_NOT_BEGUN: Final = (
    exceptions.AskError,
    exceptions.TryAgainError,
    exceptions.ClusterDownError,
    exceptions.MasterDownError,
    exceptions.ReadOnlyError,
    exceptions.BusyLoadingError,
)
"""Errors raised before a call has any effect: any call may be repeated."""
_DRIVER: Final = DriverInfo()
"""Created once: otherwise redis-py looks up its version for each connection, which takes 5 ms."""
_REFUSED: Final = (exceptions.AuthenticationError, exceptions.NoPermissionError)


def build_client(url: str) -> Redis:
    """Return a client for a URL that never retries by itself, nor searches for a primary."""
    pool = BlockingConnectionPool.from_url(
        plain_url(url),
        max_connections=16,
        timeout=SOCKET_TIMEOUT_S,
        socket_timeout=SOCKET_TIMEOUT_S,
        socket_connect_timeout=2.0,
        **({} if url.startswith("unix:") else {"socket_keepalive": True}),
        health_check_interval=15,
        retry=Retry(NoBackoff(), 0),
        protocol=3,
        driver_info=_DRIVER,
    )
    return Redis.from_pool(pool)


def _not_begun(error: Exception) -> bool:
    return isinstance(error, _NOT_BEGUN) or str(error).startswith("REBUILDING")


def _translate(error: Exception) -> Exception:
    text = str(error)
    if isinstance(error, exceptions.OutOfMemoryError) or text.startswith("OOM"):
        return StoreFull("Redis has no memory left for new work", retry_after_s=5.0)
    if isinstance(error, _REFUSED):
        return StoreRefused(f"Redis refuses us: {text}", retry_after_s=5.0)
    if isinstance(error, exceptions.ReadOnlyError) or text.startswith(_NO_WRITES_CODES):
        return StoreUnavailable(f"Redis refuses writes: {text}")
    if isinstance(error, _AWAY) or text.startswith(_AWAY_CODES):
        return StoreUnavailable(f"Redis can't be reached: {why_refused(text) or type(error).__name__}")
    if isinstance(error, NoScriptError):
        return error
    if text.startswith("REBUILDING"):
        return StoreUnavailable(
            "all indexes are being rebuilt from the jobs (`workron doctor --rebuild`): wait a moment"
        )
    hint = "; somebody has overwritten a key of ours" if text.startswith("WRONGTYPE") else ""
    return StoreBroken(f"Redis answered with an error: {text}{hint}", retry_after_s=5.0)


def _is_away(answer: Any) -> bool:
    """Return whether the error is a server's temporary state: busy, loading or a replica."""
    return isinstance(answer, Exception) and is_outage(_translate(answer))


class Connection:
    """Calls to one Redis server; each takes at most `budget_s` seconds or raises StoreUnavailable.

    All share one lane, which keeps their order.
    """

    def __init__(self, client: Redis, *, url: str | None = None, key: str = "", budget_s: float = BUDGET_S) -> None:
        self._client = client
        self._place = None if url is None else place_of(url, client.connection_pool, key)
        self.budget_s = budget_s
        self.waited_s = 0.0
        """Time already waited, deducted from a call's budget, down to `LEAST_S`."""
        self._lane: Lane | None = None
        self._opening = asyncio.Lock()
        if url is None:  # an injected client (fakeredis) answers as lanes do: replies as they are
            client.response_callbacks.clear()

    @classmethod
    def open(cls, url: str, *, key: str = "", budget_s: float = BUDGET_S) -> "Connection":
        """Return a connection for a URL; `key` is one of our keys, to find a cluster's node.

        Raises SettingsError for a URL that can't be meant.
        """
        check_url(url)
        try:
            client = build_client(url)
            made = client.connection_pool.make_connection()  # type: ignore[no-untyped-call] # it checks the options
            if isinstance(made, SSLConnection):
                made.ssl_context.get()
            return cls(client, url=url, key=key, budget_s=budget_s)
        except (TypeError, ValueError, OSError, exceptions.RedisError) as error:
            raise wrong_option(url, error) from None

    async def call(self, *command: str | int | float | bytes, repeat: bool = True) -> Any:
        """Run one command; `repeat`: it may run twice."""
        lane = self._lane
        if lane is None or lane.closed:
            return await self._within_budget(lambda: self._execute(command), repeat)
        asked_at_s = time.monotonic()
        try:
            return await lane.send(command)
        except (exceptions.RedisError, OSError) as error:
            failed = self._failed(error)
            repeats = repeat or _not_begun(error)
            if not repeats or not is_outage(failed) or isinstance(error, exceptions.TimeoutError):
                raise failed from error
        spent_s = time.monotonic() - asked_at_s  # the lane may have broken after a while, by an older call's timeout
        return await self._within_budget(lambda: self._execute(command), repeat, spent_s)

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """Run reading commands in one round trip; raise the first error."""
        answers = await self.each(commands)
        for command, answer in zip(commands, answers, strict=True):
            if isinstance(answer, Exception):
                failed = self._failed(answer)
                named = isinstance(failed, StoreBroken) and len(command) > 1
                raise StoreBroken(f"{command[1]!s} is damaged in Redis: {answer}") if named else failed from answer
        return answers

    async def each(self, commands: Sequence[Command]) -> list[Any]:
        """Do the same; permanent errors are returned among the replies."""
        if not commands:
            return []
        answers: list[Any] = await self._within_budget(lambda: self._execute_all(commands), True)
        return answers

    async def refusal(self, *command: str | int) -> Exception | None:
        """Return the error with which the server answers a writing command at present, None if it accepts it."""

        async def run() -> Any:
            [answer] = await self._answers_to([command])
            if isinstance(answer, _NO_ANSWER):
                raise answer
            return answer

        answer = await self._within_budget(run, True)
        return self._failed(answer) if isinstance(answer, Exception) else None

    async def behind(self, waiting: Command, command: Command) -> Any:
        """Run a command as soon as one that blocks has been answered, in the same round trip; an error is returned.

        On a connection of its own: given up, neither of them is run any more. A server that has answered the first, and
        is away for the second, is asked for that one again: what the first has taken out of a list is nowhere else.
        """
        left = [waiting, command]

        async def run() -> Any:
            *waited, answer = await self._answers_to(left)
            if waited and isinstance(waited[0], Exception):
                raise waited[0]
            left[:] = [command]
            if _is_away(answer):
                raise answer
            return answer

        try:
            answer = await self._within_budget(run, False)
        finally:
            if self._lane is not None and self._lane.busy:
                self._lane.close()
        if isinstance(answer, Exception) and not isinstance(answer, NoScriptError):
            raise self._failed(answer) from answer
        return answer

    async def _execute(self, command: Command) -> Any:
        if self._place is None:
            return await self._client.execute_command(*command)  # type: ignore[no-untyped-call] # redis-py
        lane = self._lane
        if lane is None or lane.closed:
            lane = await self._open_lane()
        return await lane.send(command)

    async def _execute_all(self, commands: Sequence[Command]) -> list[Any]:
        answers = await self._answers_to(commands)
        for answer in answers if self._place is not None else ():  # no answer about the key
            if _is_away(answer):
                raise answer
        return answers

    async def _answers_to(self, commands: Sequence[Command]) -> list[Any]:
        if self._place is None:
            pipe = self._client.pipeline(transaction=False)
            for command in commands:
                pipe.execute_command(*command)
            return await pipe.execute(raise_on_error=False)
        lane = await self._open_lane()
        return await asyncio.gather(*lane.send_all(commands), return_exceptions=True)

    async def _open_lane(self) -> Lane:
        assert self._place is not None  # noqa: S101 - an injected client has no lane
        async with self._opening:
            if self._lane is None or self._lane.closed:
                self._lane = await self._place.open(self.budget_s)
            return self._lane

    def _failed(self, error: Exception) -> Exception:
        """Translate; where another server has our keys by now, the next call looks for it."""
        if self._lane is not None and self._place is not None and self._place.is_left(error):
            self._lane.retire()
        return _translate(error)

    async def _within_budget(self, run: Callable[[], Awaitable[Any]], repeat: bool, spent_s: float = 0.0) -> Any:
        pause_s = 0.05
        last: Exception | None = None
        began_s = asyncio.get_running_loop().time() - spent_s
        try:
            less_s = spent_s + max(0.0, min(self.waited_s, self.budget_s - LEAST_S))
            async with asyncio.timeout(max(0.0, self.budget_s - less_s)):
                while True:
                    try:
                        return await run()
                    except (exceptions.RedisError, OSError) as error:
                        last = self._failed(error)
                        repeats = repeat or _not_begun(error)
                        if not repeats or not is_outage(last):
                            raise last from error
                    await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, not a secret
                    pause_s *= 2
        except TimeoutError as error:
            if self._lane is not None and self._lane.heard_s < began_s:
                self._lane.close()  # it may be half open: a call that is made later must not wait behind these
            raise last or StoreUnavailable(f"Redis did not answer within {self.budget_s:g} s") from error

    def another(self, budget_s: float | None = None) -> "Connection":
        """Return another connection to the same server, for slow calls.

        The caller must `leave` it at the end. With an injected client (fakeredis) it is the same connection.
        """
        if self._place is None:
            return self
        made = Connection(self._client, budget_s=budget_s or self.budget_s)
        made._place = self._place
        return made

    @asynccontextmanager
    async def own(self, block_s: float = BLOCK_S) -> AsyncIterator["Connection"]:
        """Give a connection of its own, for commands that block for at most `block_s` seconds."""
        connection = self.another(block_s + 1)
        try:
            yield connection
        finally:
            if connection is not self:
                await connection.leave()

    def rest(self) -> None:
        """Abandon outstanding replies, and a lane whose server may have become a replica unnoticed."""
        lane = self._lane
        if lane is not None and (lane.busy or asyncio.get_running_loop().time() - lane.opened_s > GOOD_FOR_S):
            lane.close()

    async def messages(self, channel: str) -> AsyncIterator[str]:
        """Yield messages published on a channel; raises StoreUnavailable when the subscription breaks."""
        subscribed = self._pushed(channel) if self._place is not None else self._published(channel)
        try:
            async with aclosing(subscribed):
                async for message in subscribed:
                    yield message.decode()
        except (exceptions.RedisError, OSError) as error:
            raise self._failed(error) from error

    async def _pushed(self, channel: str) -> AsyncGenerator[bytes, None]:
        assert self._place is not None  # noqa: S101 - only called with one
        news: asyncio.Queue[list[bytes] | None] = asyncio.Queue()
        lane = await self._place.open(SOCKET_TIMEOUT_S)
        lane.on_push = news.put_nowait
        try:
            await lane.send(("SUBSCRIBE", channel))
            while True:
                try:
                    pushed = await asyncio.wait_for(news.get(), BLOCK_S)
                except TimeoutError:
                    await lane.send(("PING",))  # it may be half open
                    continue
                if pushed is None:
                    raise exceptions.ConnectionError("the subscription was closed")
                if pushed[0] == b"message":
                    yield pushed[2]
        finally:
            lane.close()

    async def _published(self, channel: str) -> AsyncGenerator[bytes, None]:
        async with self._client.pubsub(ignore_subscribe_messages=True) as subscription:
            await subscription.subscribe(channel)
            while True:
                message = await subscription.get_message(timeout=BLOCK_S)
                if message is not None:
                    yield message["data"]

    async def leave(self) -> None:
        """Close this connection only; others to the same server go on."""
        if self._lane is not None:
            await self._lane.aclose()

    async def aclose(self) -> None:
        await self.leave()
        await self._client.aclose()
