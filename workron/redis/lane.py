"""A multiplexed connection to Redis: calls are written immediately, replies arrive in that order.

A late reply fails its own call and is skipped when it arrives. A server that is completely silent
for this time fails all calls: the connection may be half open.

redis-py opens it (TLS, AUTH, HELLO, SELECT); then the lane uses its transport. A call of redis-py costs three times as
much: a pool, a lock, a retry, two timeouts, and a connection per concurrent call.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import hiredis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError, RedisError, TimeoutError

Command = Sequence[str | int | float | bytes]

_NO_REPLY: Final = object()
_CLOSED: Final = "the connection was closed"


class Lane(asyncio.Protocol):
    """The outstanding calls of one connection. A broken connection fails all of them; then open another lane."""

    def __init__(self, connection: AbstractConnection, limit_s: float) -> None:
        self._asked: deque[tuple[asyncio.Future[Any], float]] = deque()
        """Outstanding replies with their start times on the loop's clock."""
        self._limit_s = limit_s
        self._watching = False
        self._loop = asyncio.get_running_loop()
        self.opened_s: Final = self._loop.time()
        self.heard_s = -math.inf
        """Time of the last data from the server, on the loop's clock."""
        self._lost = asyncio.Event()
        self._retired = False
        self.on_push: Callable[[list[bytes] | None], object] | None = None
        """Receives push messages, and None when the connection is lost."""
        self._beside: Lane | None = None
        self._replies = hiredis.Reader(
            protocolError=RedisError, replyError=connection._parser.parse_error, notEnoughData=_NO_REPLY
        )
        assert connection._writer is not None  # noqa: S101 - it is connected
        self._writer = connection._writer  # its destructor would close the transport
        self._transport = self._writer.transport
        self._transport.set_protocol(self)

    @classmethod
    async def open(cls, connection: AbstractConnection, limit_s: float) -> "Lane":
        """Connect, and take the connection over; any of redis-py's errors.

        A reply that takes longer than `limit_s` is a TimeoutError; `limit_s` of silence close the lane.
        """
        connection.socket_timeout = None  # its `wait_for` swallows cancels before Python 3.12; callers limit the time
        connection.health_check_interval = 0
        try:
            await connection.connect()  # type: ignore[no-untyped-call] # redis-py
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        lane = cls(connection, limit_s)
        connection._reader = connection._writer = None  # else it complains about not having been closed
        return lane

    @property
    def closed(self) -> bool:
        return self._retired or self._transport.is_closing()

    @property
    def busy(self) -> bool:
        """Whether replies are outstanding, including abandoned ones."""
        return bool(self._asked)

    def keep_beside(self, other: "Lane") -> None:
        """Close another lane when this one is closed."""
        self._beside = other
        if self._transport.is_closing():
            other.close()

    def send(self, command: Command) -> asyncio.Future[Any]:
        """Write a command and return the future of its reply, which may be abandoned."""
        return self.send_all((command,))[0]

    def send_all(self, commands: Sequence[Command]) -> list[asyncio.Future[Any]]:
        """Write commands with one system call, and return the futures of their replies."""
        if self.closed:
            raise ConnectionError(_CLOSED)
        packed = [hiredis.pack_command(tuple(command)) for command in commands]  # type: ignore[arg-type] # takes our four types
        now_s = self._loop.time()
        replies: list[asyncio.Future[Any]] = [self._loop.create_future() for _ in commands]
        self._asked.extend([(reply, now_s) for reply in replies])
        self._transport.write(b"".join(packed))
        if not self._watching:
            self._watch(self._limit_s)
        return replies

    def _watch(self, wait_s: float) -> None:
        self._watching = True
        self._loop.call_later(wait_s, self._check)

    def _check(self) -> None:
        """Fail calls that time out: one timer for all calls, set only while there are any."""
        self._watching = False
        if not self._asked:
            return
        too_old_s = self._loop.time() - self._limit_s
        silent_since_s = max(self.heard_s, self._asked[0][1])
        if silent_since_s <= too_old_s:
            self._answer(self._late())
            self.close()
            return
        next_s = silent_since_s
        for reply, asked_s in self._asked:
            if asked_s > too_old_s:
                next_s = min(next_s, asked_s)
                break
            if not reply.done():
                reply.set_exception(self._late())
        self._watch(next_s - too_old_s)

    def _late(self) -> TimeoutError:
        return TimeoutError(f"no answer within {self._limit_s:g} s")

    def retire(self) -> None:
        """Accept no more calls, and close after all outstanding replies."""
        self._retired = True
        if not self._asked:
            self.close()

    def close(self) -> None:
        """Close at once: outstanding replies are lost."""
        self._transport.abort()

    async def aclose(self) -> None:
        """Close, and return when the socket is gone."""
        self.close()
        await self._lost.wait()
        if self._beside is not None:
            await self._beside.aclose()

    def data_received(self, data: bytes) -> None:
        self.heard_s = self._loop.time()
        self._replies.feed(data)
        try:
            while (reply := self._replies.gets()) is not _NO_REPLY:
                if not isinstance(reply, hiredis.PushNotification) or reply[0] == b"subscribe":
                    self._answer(reply)
                elif self.on_push is not None:
                    self.on_push(reply)
        except RedisError:  # protocol error: replies can't be assigned to calls any more
            self.close()
        if self._retired and not self._asked:
            self.close()

    def _answer(self, reply: Any) -> None:
        asked, _ = self._asked.popleft()
        if asked.done():
            return
        if isinstance(reply, Exception):
            asked.set_exception(reply)
        else:
            asked.set_result(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost.set()
        while self._asked:
            self._answer(ConnectionError(str(exc) if exc else _CLOSED))
        if self.on_push is not None:
            self.on_push(None)
        if self._beside is not None:
            self._beside.close()
